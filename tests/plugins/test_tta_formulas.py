"""The plugin `tta`: spread, schedules and recipes, against hand arithmetic."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import pytest
import torch

from hpml_plugins import HpmlError
from hpml_plugins.plugins.tta import recipes, utilisation
from hpml_plugins.plugins.tta.recipes import (
    VARIABLE,
    Schedule,
    merged,
    read_recipe,
    recipe_names,
)
from hpml_plugins.plugins.tta.time_to_accuracy import (
    DATA,
    RECIPES,
    SHARED_RECIPES,
    success_interval,
    variation_interval,
)

# mean 12, squares of deviations 4 + 0 + 1 + 1 + 4 = 10, variance 10 / 4
TIMES = (10.0, 12.0, 11.0, 13.0, 14.0)


def test_the_interval_of_the_variation_is_vangels() -> None:
    # k² = 2.5 / 144 = 0.0173611, n = 5, u = 11.1433 and 0.48442.
    # (13.1433 / 5 − 1) k² + 11.1433 / 4 = 0.028275 + 2.785825 = 2.814100; 0.131762 / √2.814100 =
    # 0.078545 (2.48442 / 5 − 1) k² + 0.48442 / 4 = −0.008735 + 0.121105 = 0.112370; 0.131762 /
    # √0.112370 = 0.393063
    low, high = variation_interval(TIMES)
    assert low == pytest.approx(0.078545, rel=1e-4)
    assert high == pytest.approx(0.393063, rel=1e-4)


def test_the_interval_holds_the_true_variation_as_often_as_it_says() -> None:
    drawn = 10 + 0.5 * torch.randn(
        2000, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    intervals = [variation_interval(values) for values in drawn.tolist()]
    held = sum(low <= 0.05 <= high for low, high in intervals) / len(intervals)
    assert 0.935 < held < 0.965  # three standard errors of 0.95 over 2000 are 0.0146


def test_one_run_has_no_interval() -> None:
    with pytest.raises(ValueError, match="one value has no spread"):
        variation_interval((1.0,))


def test_a_very_wide_spread_has_no_upper_end() -> None:
    assert variation_interval((0.01, 10.0, 0.01))[1] == math.inf


def test_the_share_of_success_has_wilsons_interval() -> None:
    # 5 of 5, z² = 3.841459: middle (1 + 3.841459 / 10) / (1 + 3.841459 / 5) = 1.384146 / 1.768292 =
    # 0.782759; reach 1.959964 / 1.768292 · √(3.841459 / 100) = 1.108394 · 0.195996 = 0.217241
    low, high = success_interval(5, 5)
    assert (low, high) == (pytest.approx(0.565518, abs=1e-6), 1.0)


def test_schedules_at_hand() -> None:
    assert Schedule("linear").share_of_peak(5, 20) == 0.75
    assert Schedule("cosine").share_of_peak(10, 20) == pytest.approx(0.5)
    cycle = Schedule("one_cycle", rise=0.25, start=0.2, end=0.04)
    # Up: 0.2 + 0.8 · 0.1 / 0.25 = 0.52 at a tenth; the peak at a quarter; down: 1 − 0.96 · 0.5 /
    # 0.75 = 0.36 at 0.75.
    assert [cycle.share_of_peak(step, 100) for step in (0, 10, 25, 75)] == pytest.approx(
        [0.2, 0.52, 1.0, 0.36]
    )


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("data", DATA)
def test_every_recipe_is_whole_for_every_data_set(name: str, data: str) -> None:
    recipe = read_recipe(name, data)
    assert 0 < recipe.target < 1
    assert recipe.fingerprint() != msgspec.structs.replace(recipe, batch=7).fingerprint()
    assert recipe.on("cuda") == recipe
    on_cpu = recipe.on("cpu")
    assert (on_cpu.precision, on_cpu.compile, on_cpu.graph) == ("float32", "", False)
    assert on_cpu.network == recipe.network


def test_the_grids_name_the_recipes() -> None:
    assert RECIPES == ("lab", "lab_stem3", "modern", "modern_stem3", "fast")
    assert set(SHARED_RECIPES) == {
        name for name in recipe_names() if read_recipe(name, "digits").muon is None
    }


def test_the_exercises_recipe_is_what_it_asks_for() -> None:
    lab = read_recipe("lab", "cifar10")
    assert (lab.network.name, lab.batch, lab.epochs, lab.target) == (
        "resnet50",
        128,
        12,
        0.58,
    )
    stem3 = read_recipe("lab_stem3", "cifar10")
    assert (stem3.network.name, stem3.epochs, stem3.target) == ("resnet50_stem3", 60, 0.92)
    assert read_recipe("lab_stem3", "digits").network.name == "small_resnet"


def test_what_is_wrong_with_a_recipe_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(HpmlError, match="tta has no recipe 'slow'; use one of lab, "):
        read_recipe("slow", "digits")
    with pytest.raises(
        HpmlError, match="recipe 'fast' is not for 'mnist' but for cifar10, "
    ):
        read_recipe("fast", "mnist")
    own = tmp_path / "mine.yaml"
    own.write_text("mine: {like: fast, epochs: 3}\nwrong: {like: fast, epoks: 3}\n")
    monkeypatch.setenv(VARIABLE, str(own))
    with pytest.raises(
        HpmlError, match=r"recipe 'wrong' for 'digits': .*unknown field `epoks`"
    ):
        read_recipe("wrong", "digits")
    assert read_recipe("mine", "digits").network == read_recipe("fast", "digits").network
    assert read_recipe("mine", "cifar10").epochs == 3
    own.write_text("- no mapping\n")
    with pytest.raises(HpmlError, match=r"mine\.yaml cannot be read"):
        read_recipe("fast", "digits")
    own.write_text(
        "mine: {like: other}\nother: {like: mine}\nodd: {like: [fast]}\nno_data: {like: fast, for:"
        " 7}\n"
    )
    for name, told in {
        "mine": "recipe 'other' is like 'mine', which is like it",
        "odd": "recipe 'odd' is like ['fast'], which does not exist",
        "no_data": "recipe 'no_data': for: Expected `object`, got `int`",
    }.items():
        with pytest.raises(HpmlError, match=re.escape(told)):
            read_recipe(name, "digits")


def test_mappings_are_merged_key_by_key() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert merged(base, {"a": {"c": 3}, "d": [2]}) == {"a": {"b": 1, "c": 3}, "d": [2]}
    assert base["a"] == {"b": 1, "c": 2}


def test_tricks_are_measured_alone_then_added_up_none_of_them_twice() -> None:
    lab = read_recipe("lab", "cifar10")
    found = list(utilisation.rows(lab, "cuda", compiled=True))
    assert [(name, kind) for name, kind, _ in found] == [
        ("lab", "alone"),
        *((name, "alone") for name in recipes.read_tricks()),
        ("+ precision", "together"),
        ("+ channels_last", "together"),
        ("+ on_device", "together"),
        ("+ graph", "together"),
        ("+ compile", "together"),
        ("+ batch", "together"),
    ]
    last = found[-1][2]
    assert (last.batch, last.precision, last.graph, last.compile) == (
        8 * 128,
        "bfloat16",
        True,
        "default",
    )
    assert not any(
        recipe.compile for *_, recipe in utilisation.rows(lab, "cuda", compiled=False)
    )
    everything = recipes.with_tricks(lab, "all")
    assert (everything.batch, everything.compile, everything.on_device) == (
        128,
        "default",
        True,
    )
    assert recipes.with_tricks(lab, "graphed").compile == ""
    prints = [
        recipe.fingerprint() for *_, recipe in utilisation.rows(lab, "cpu", compiled=True)
    ]
    assert len(prints) == len(set(prints)) < len(found)
    with pytest.raises(HpmlError, match="tta has no trick 'luck'"):
        recipes.with_tricks(lab, "luck")
