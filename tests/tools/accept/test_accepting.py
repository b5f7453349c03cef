"""`hpml accept`: bands from Records, verdicts on cards, bits, and what it prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from fill_docs import SCHEMAS, schemas
from records import a_record
from support import ROOT, in_a_child

from hpml_plugins import Bench, Record
from hpml_plugins.cli import Settings
from hpml_plugins.errors import Failure, UsageError
from hpml_plugins.model import Gpu, MetricSamples, Node, Series
from hpml_plugins.model.record import Timer
from hpml_plugins.model.work import DeclaredWork
from hpml_plugins.plugins.bits import bits as bits_plugin
from hpml_plugins.plugins.bits.bits import BITS, DIGESTS, FLIP_VARIABLE, SHA256, STEP
from hpml_plugins.plugins.reference.reference import REFERENCE_STEPS
from hpml_plugins.store import read_records
from hpml_plugins.tools.accept import command as accept_command
from hpml_plugins.tools.accept import measuring
from hpml_plugins.tools.accept.backtest import back_test
from hpml_plugins.tools.accept.bands import (
    SHIPPED,
    Bands,
    as_file,
    card_digest,
    read_bands,
)
from hpml_plugins.tools.accept.command import as_lines, as_page, judge
from hpml_plugins.tools.accept.export import make_bands
from hpml_plugins.tools.accept.judging import (
    Acceptance,
    ComponentVerdict,
    judge_bits,
    judge_card,
)
from hpml_plugins.tools.accept.measuring import Measured
from hpml_plugins.tools.accept.points import accept_points, digests_of

H100 = "NVIDIA H100 80GB HBM3"
#: s of each step of the reference on a sound card, and how far cards differ.
COPY, FLOAT32, SETTLED, BOOST = 2.834e-3, 2.7e-3, 1.6e-3, 1.4e-3
SPREAD = {"copy": 2e-4, "float32": 1e-3, "bfloat16": 5e-3}
SOUND = ("pass", "")


def reference(card: str, **slower: float) -> Record:
    """A visit of a card.  slower: factor of the times of a step, or of `boost`."""
    shift = (int(card_digest(card), 16) % 1000) / 1000 - 0.5
    at = {name: math.exp(spread * shift) for name, spread in SPREAD.items()}

    def times(name: str, seconds: float) -> list[float]:
        return [
            seconds * at[name] * slower.get(name, 1.0) * (1 + 1e-5 * n) for n in range(9)
        ]

    timers = [Timer.EVENTS]
    boost = [
        BOOST * at["bfloat16"] * slower.get("boost", 1.0) * (1 + 1e-5 * n) for n in range(9)
    ]
    return a_record(
        REFERENCE_STEPS,
        {
            "copy": MetricSamples("s", "lower", times("copy", COPY), timers=timers),
            "float32": MetricSamples(
                "s", "lower", times("float32", FLOAT32), timers=timers
            ),
            "bfloat16": MetricSamples(
                "s", "lower", times("bfloat16", SETTLED), timers=timers, boost=boost
            ),
        },
        gpu=H100,
        card=card,
        run=card,
        started=1e9 + int(card_digest(card)[:4], 16),
        packages={"torch": "2.11.0"},
        work={
            "copy": DeclaredWork(bytes=2 * 2.0**32, gpus=1),
            "float32": DeclaredWork(flop=2 * 4096**3, gpus=1),
            "bfloat16": DeclaredWork(flop=2 * 8192**3, dtype="bfloat16", gpus=1),
        },
    )


CARDS = [f"GPU-{number}" for number in range(8)]


@pytest.fixture(scope="module")
def bands() -> Bands:
    return make_bands(map(reference, CARDS))


def verdict_on(record: Record, bands: Bands, card: str) -> tuple[str, str]:
    found = judge_card(card, H100, [record], bands, SOUND)
    return found.verdict, found.explained_by


def test_a_sound_card_passes_and_a_slow_one_fails_for_its_component(bands: Bands) -> None:
    assert verdict_on(reference("GPU-new"), bands, "GPU-new") == ("pass", "")
    for slower, component in (
        ({"copy": 1.05}, "memory"),
        ({"float32": 1.1, "bfloat16": 1.1, "boost": 1.1}, "clocks"),
        ({"bfloat16": 1.15}, "power"),
        ({"boost": 1.15}, "tensor cores"),
    ):
        record = reference("GPU-new", **slower)
        assert verdict_on(record, bands, "GPU-new") == ("fail", component), slower


def test_a_neighbour_that_disturbs_a_few_samples_shows_in_their_mean(bands: Bands) -> None:
    record = reference("GPU-new")
    copy = record.metrics["copy"]
    disturbed = msgspec.structs.replace(
        copy, samples=[*copy.samples[:-2], 1.3 * COPY, 1.3 * COPY]
    )
    assert disturbed.value == pytest.approx(copy.value, rel=1e-3)
    beside = msgspec.structs.replace(
        record,
        metrics={**record.metrics, "copy": disturbed},
        conditions={"other_processes": 1.0},
    )
    found = judge_card("GPU-new", H100, [beside], bands, SOUND)
    assert (found.verdict, found.explained_by) == ("fail", "another program")
    assert found.why.startswith("memory: reference copy is 1.06")
    idle = msgspec.structs.replace(record, conditions={"other_processes": 1.0})
    found = judge_card("GPU-new", H100, [idle], bands, SOUND)
    assert (found.verdict, found.why) == ("cannot say", "other programs were on the GPU")


def test_a_card_is_not_judged_by_itself() -> None:
    slow = reference("GPU-3", copy=1.04)
    others = [reference(card) for card in CARDS if card != "GPU-3"]
    with_it = make_bands([*others, slow])
    assert verdict_on(slow, with_it, "GPU-3") == ("fail", "memory")
    (population,) = with_it.populations
    copy = next(band for band in population.bands if band.metric == "copy")
    alone = next(
        band for band in make_bands(others).populations[0].bands if band.metric == "copy"
    )
    assert copy.level("GPU-3").centre == pytest.approx(alone.every.centre, abs=1e-6)
    assert copy.level("GPU-3").limit == pytest.approx(alone.every.limit, rel=0.5)


def test_a_bad_card_in_the_records_does_not_move_the_bands(bands: Bands) -> None:
    bad = reference("GPU-bad", copy=1.3, float32=1.3, bfloat16=1.3, boost=1.3)
    found = make_bands([*map(reference, CARDS), bad])
    assert [each.outliers for each in found.populations] == [1]
    for before, after in zip(
        bands.populations[0].bands, found.populations[0].bands, strict=True
    ):
        assert after.every.centre == pytest.approx(before.every.centre, abs=1e-6)
        assert after.every.limit == pytest.approx(before.every.limit, rel=1e-3)


def test_with_few_cards_only_published_peaks_judge_and_nothing_passes() -> None:
    few = make_bands(map(reference, CARDS[:3]))
    assert few.populations == ()
    found = judge_card("GPU-0", H100, [reference("GPU-0")], few, SOUND)
    assert found.verdict == "cannot say"
    assert "no population of NVIDIA H100" in found.why
    assert {each.basis for each in found.values} == {"published peak"}
    slow = judge_card("GPU-0", H100, [reference("GPU-0", copy=2.0)], few, SOUND)
    assert (slow.verdict, slow.explained_by) == ("fail", "memory")
    assert "below 75% it would fail" in slow.why


def test_a_halved_link_between_cards_fails_by_the_published_peak(bands: Bands) -> None:
    for rate, verdict in ((330e9, "cannot say"), (165e9, "fail")):
        measured = two_cards()
        gpus = [{"name": H100, "uuid": card} for card in measured.cards]
        measured.between = [
            a_record(
                "allreduce_nccl",
                {"bus_bandwidth": rate},
                units={"bus_bandwidth": "B/s"},
                node={"gpus": gpus},
                packages={"torch": "2.11.0"},
            )
        ]
        found = judge(measured, bands, 0.0)
        assert [each.verdict for each in found.node if each.component == "link"] == [
            verdict
        ]
        assert found.verdict == ("fail" if verdict == "fail" else "pass")


def test_a_card_whose_bits_are_in_doubt_does_not_pass(bands: Bands) -> None:
    for verdict in ("pass", "cannot say", "fail"):
        records = [reference("GPU-new")]
        found = judge_card("GPU-new", H100, records, bands, (verdict, "differ"))
        assert found.verdict == verdict
        assert ("differ" in found.why) == (verdict != "pass")


def test_another_stack_is_another_population(bands: Bands) -> None:
    record = msgspec.structs.replace(reference("GPU-new"), packages={"torch": "9.9"})
    found = judge_card("GPU-new", H100, [record], bands, SOUND)
    assert found.verdict == "cannot say"
    assert "torch 2.11.0 alone, and this is torch 9.9" in found.why


def test_a_card_with_a_failed_or_missing_measurement_does_not_pass(bands: Bands) -> None:
    failed = a_record("machine_memory", status="failed", reason="out of memory", gpu=H100)
    found = judge_card("GPU-new", H100, [reference("GPU-new"), failed], bands, SOUND)
    assert (found.verdict, "out of memory" in found.why) == ("cannot say", True)
    assert judge_card("GPU-new", H100, [], bands, SOUND).verdict == "cannot say"


def test_a_damaged_file_of_bands_is_refused(bands: Bands, tmp_path: Path) -> None:
    path = tmp_path / "bands.json"
    path.write_bytes(as_file(bands))
    assert read_bands(path).populations == bands.populations
    for damaged, said in (
        (path.read_bytes().replace(b'"cards": 8', b'"cards": 9'), "its digest is another"),
        (b"{}", "no file of bands"),
        (b"\xff", "no file of bands"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=said):
            read_bands(path)
    with pytest.raises(UsageError, match="No such file"):
        read_bands(tmp_path / "missing.json")


def test_bands_of_nothing_are_not_written(tmp_path: Path) -> None:
    target, empty = tmp_path / "bands.json", tmp_path / "results"
    empty.mkdir()
    runner, settings = CliRunner(), Settings(tmp_path / "registry.yaml")
    for arguments in (["--export-bands", str(target)], ["--back-test"]):
        done = runner.invoke(
            accept_command.command,
            [*arguments, "--results", str(empty)],
            obj=settings,
            standalone_mode=False,
        )
        assert (done.return_value, done.exception) == (3, None)
        done = runner.invoke(
            accept_command.command,
            [*arguments, "--results", str(tmp_path / "none")],
            obj=settings,
            standalone_mode=False,
        )
        assert "no folder of results" in str(done.exception)
    assert not target.exists()


def test_the_file_contains_no_uuid(bands: Bands) -> None:
    assert b"GPU-" not in as_file(bands)
    assert b"GPU-" not in SHIPPED.read_bytes()


def test_the_back_test_judges_each_round_of_each_card_by_the_others() -> None:
    records = []
    for card in CARDS:
        record = reference(card)
        slow = reference(card, copy=1.05).metrics["copy"].samples
        copy = record.metrics["copy"]
        second = slow if card == "GPU-2" else copy.samples  # its second round alone is slow
        rounds = msgspec.structs.replace(
            copy, samples=[*copy.samples, *second, *copy.samples], rounds=[9, 9, 9]
        )
        metrics = {**record.metrics, "copy": rounds}
        records.append(msgspec.structs.replace(record, metrics=metrics, planned_rounds=3))
    (row,) = back_test(records)
    assert row["type"] == H100
    assert [row[name] for name in ("cards", "rounds", "fail", "pass")] == [
        "8",
        "24",
        "1",
        "23",
    ]
    assert row["memory 5 % slower, found"] == "23 of 23"
    assert row["link halved, found"] == "–"


def test_the_shipped_bands_are_those_of_results(committed_results: Path) -> None:
    shipped = read_bands()
    made = make_bands(read_records(committed_results))
    assert shipped.made_from == made.made_from, "the bands are stale: make docs"
    for known, found in zip(shipped.populations, made.populations, strict=True):
        assert (known.hardware, known.cards) == (found.hardware, found.cards)
        for before, after in zip(known.bands, found.bands, strict=True):
            assert before.every.limit == pytest.approx(after.every.limit, rel=1e-3)


def test_the_card_whose_bits_differ_is_named() -> None:
    right, wrong = {"product": "a", "copy": "b"}, {"product": "x", "copy": "b"}
    three = judge_bits({"0": right, "1": wrong, "2": right}, {})
    assert {card: verdict for card, (verdict, _) in three.items()} == {
        "0": "pass",
        "1": "fail",
        "2": "pass",
    }
    assert three["1"][1] == "other bits than its type computes: product"
    two = judge_bits({"0": right, "1": wrong}, {})
    assert {verdict for verdict, _ in two.values()} == {"cannot say"}
    assert judge_bits({"0": right}, {})["0"][0] == "pass"  # its repeats agree
    known = judge_bits({"1": wrong}, {"1": right})
    assert known["1"][0] == "fail"


@in_a_child
def test_a_bit_flipped_on_one_device_changes_its_digests(
    monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    """In one process, with little of everything; in processes of their own: the next test."""
    small = {"REPEATS": 1, "CPU_SIDE": 32, "CPU_COPIED": 2**14, "IMAGES": 2, "TRAINED": 1}
    for name, value in small.items():
        monkeypatch.setattr(bits_plugin, name, value)
    monkeypatch.setenv(FLIP_VARIABLE, "1")
    digests = {}
    for device in "012":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
        bench = Bench(node, {})
        BITS.measure(bench)
        columns = bench.collected.series[DIGESTS].columns
        digests[device] = dict(zip(columns[STEP], columns[SHA256], strict=True))
    assert len(digests["0"]) == 6
    verdicts = judge_bits(digests, {})
    assert {card for card, (verdict, _) in verdicts.items() if verdict == "fail"} == {"1"}
    assert verdicts["1"][1].endswith("float32 product")


@pytest.mark.slow
def test_a_bit_flipped_on_one_device_is_detected(
    monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    monkeypatch.setenv(FLIP_VARIABLE, "1")
    monkeypatch.setattr(measuring, "LIMIT", 900.0)  # with other tests on these CPUs
    key = next(
        key for key, (each, _) in accept_points().items() if each.benchmark == "bits"
    )
    found = Measured(node)
    cards = {f"card {number}": str(number) for number in range(3)}
    measuring._measure(found, cards, {card: [key] for card in cards})
    assert found.problems == {}
    digests = {card: digests_of(records[-1]) for card, records in found.cards.items()}
    verdicts = judge_bits(digests, {})
    assert {card for card, (verdict, _) in verdicts.items() if verdict == "fail"} == {
        "card 1"
    }
    assert verdicts["card 1"][1].endswith("float32 product")


def two_cards(*, slow: bool = False) -> Measured:
    gpus = tuple(Gpu(name=H100, uuid=each) for each in ("GPU-0", "GPU-1"))
    node = Node("Linux", "x86_64", "<b>CPU</b>", 8, 1e11, "3.12", gpus=gpus)
    second = reference("GPU-1", copy=1.05 if slow else 1.0)
    cards = {"GPU-0": [reference("GPU-0"), bits("GPU-0")], "GPU-1": [second, bits("GPU-1")]}
    return Measured(node, cards)


def bits(card: str) -> Record:
    """What every sound card computes."""
    digests = Series.of({"step": ["product"], "sha256": ["a"]})
    return a_record(
        "bits",
        {"repeats": 20.0},
        gpu=H100,
        card=card,
        series={"digests": digests},
        packages={"torch": "2.11.0"},
    )


@pytest.fixture
def run(bands: Bands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Call the command on a node that measured this; returns exit status and output."""
    file = tmp_path / "bands.json"
    file.write_bytes(as_file(bands))

    def call(
        measured: Measured, *arguments: str, again: Measured | None = None
    ) -> tuple[object, str]:
        monkeypatch.setattr(accept_command, "measure_node", lambda *_: measured)
        second = again or measured
        monkeypatch.setattr(accept_command, "measure_again", lambda *_, **__: second)
        settings = Settings(tmp_path / "registry.yaml")
        runner = CliRunner()
        command = [*arguments, "--bands", str(file)]
        done = runner.invoke(
            accept_command.command, command, obj=settings, standalone_mode=False
        )
        assert done.exception is None, done.exception
        return done.return_value, done.stdout

    yield call


def test_the_exit_status_is_the_nodes_verdict(run: object, node: Node) -> None:
    assert callable(run)
    status, text = run(two_cards())
    assert (status, text.count("PASS")) == (0, 3)
    status, text = run(two_cards(slow=True))
    assert status == 1
    assert "FAIL  GPU-1" in text
    assert "PASS  GPU-0" in text
    assert "  memory: reference copy is 1.05" in text
    status, text = run(Measured(node, {"boot": []}))
    assert status == 3
    assert "CANNOT SAY  this node" in text


def test_a_page_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_command, "measure_node", lambda *_: pytest.fail("measured"))
    with pytest.raises(OSError):
        CliRunner().invoke(
            accept_command.command,
            ["--html", "/proc/page.html"],
            obj=Settings(tmp_path / "registry.yaml"),
            standalone_mode=False,
            catch_exceptions=False,
        )


def test_a_failed_value_is_measured_again_and_both_outcomes_are_reported(
    run: object,
) -> None:
    assert callable(run)
    slow = two_cards(slow=True)
    at_first = "failed at first, measured again: GPU-1: reference copy is 1.05"
    again = Measured(slow.node, {"GPU-1": [reference("GPU-1")]})
    status, text = run(slow, again=again)
    assert (status, "PASS  GPU-1" in text, at_first in text) == (0, True, True)
    status, text = run(slow)
    assert (status, "FAIL  GPU-1" in text, at_first in text) == (1, True, True)
    status, text = run(slow, again=Measured(slow.node, {"GPU-1": []}))
    assert (status, "FAIL  GPU-1" in text, at_first in text) == (1, True, True)
    status, text = run(two_cards())
    assert (status, "at first" in text) == (0, False)


def test_only_points_of_failed_values_are_measured_again(bands: Bands, node: Node) -> None:
    slow = two_cards(slow=True)
    found = judge(slow, bands, 0.0)
    declared = {each.benchmark: each for each, _ in accept_points().values()}
    assert accept_command.keys_of(found) == {"GPU-1": [declared["reference"].key({})]}
    key = declared["machine_launch"].key({})  # skipped at once without a GPU
    again = measuring.measure_again(Measured(node), {"card": [key]}, between=False)
    assert [each.benchmark for each in again.cards["card"]] == ["machine_launch"]
    merged = slow.with_again(Measured(slow.node, {"GPU-0": [bits("GPU-0")]}))
    points = [each.benchmark for each in merged.cards["GPU-0"]]
    assert sorted(points) == ["bits", "reference"]


def test_a_wrong_result_of_any_point_fails_the_card_that_computed_it(bands: Bands) -> None:
    measured = two_cards()
    for failure, verdict in ((Failure.CHECK, "fail"), (Failure.ERROR, "cannot say")):
        wrong = a_record("machine_memory", status="failed", reason="sum", failure=failure)
        cards = {**two_cards().cards, "GPU-1": [reference("GPU-1"), bits("GPU-1"), wrong]}
        measured = Measured(measured.node, cards)
        found = judge(measured, bands, 0.0)
        assert [each.verdict for each in found.cards] == ["pass", verdict]
        assert "machine_memory" in found.why


def test_points_without_time_are_counted_and_the_card_does_not_pass(
    bands: Bands, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "LIMIT", -1.0)
    monkeypatch.setattr(measuring, "GRACE", 600.0)
    found = Measured(node)
    key = next(
        key for key, (each, _) in accept_points().items() if each.benchmark == "bits"
    )
    measuring._measure(found, {"GPU-0": None}, {"GPU-0": [key]})
    said = "1 of 1 point could not be measured within -1 s"
    assert found.problems == {"GPU-0": said}
    measured = two_cards()
    measured.problems |= found.problems
    judged = judge(measured, bands, 0.0)
    assert [each.verdict for each in judged.cards] == ["cannot say", "pass"]
    assert said in judged.why
    unknown = judge_card("GPU-0", "A100", [reference("GPU-0")], bands, SOUND)
    assert "no population of A100 is known" in unknown.why
    assert "--export-bands" in unknown.advice[-1]
    assert judge_card("GPU-0", H100, [bits("GPU-0")], bands, SOUND).advice == ()


def test_a_host_twice_as_slow_as_others_has_time_for_all_points() -> None:
    for population in read_bands(SHIPPED).populations:
        seconds = {band.point: band.seconds for band in population.bands}
        assert 2 * sum(seconds.values()) < measuring.LIMIT


def test_a_link_that_was_not_measured_or_computes_wrong_is_not_passed_over(
    bands: Bands,
) -> None:
    sound = two_cards()
    assert judge(sound, bands, 0.0).verdict == "pass"

    hanging = Measured(sound.node, sound.cards, problems={"": "it did not end within 90 s"})
    found = judge(hanging, bands, 0.0)
    assert (found.verdict, found.why) == ("cannot say", "link: it did not end within 90 s")
    assert "node: link          cannot say: it did not end" in "\n".join(as_lines(found))

    def all_reduce(failure: Failure) -> Measured:
        failed = a_record(
            "allreduce_nccl", status="failed", reason="other sums", failure=failure
        )
        return Measured(sound.node, sound.cards, [failed])

    found = judge(all_reduce(Failure.ERROR), bands, 0.0)
    assert (found.verdict, found.why) == (
        "cannot say",
        "link: allreduce_nccl failed: other sums",
    )
    found = judge(all_reduce(Failure.CHECK), bands, 0.0)
    assert (found.verdict, found.why) == ("fail", "allreduce_nccl: other sums")


def test_a_failing_host_is_explained_in_text_and_page(bands: Bands) -> None:
    fails = ComponentVerdict(
        component="host", verdict="fail", why="launch is 3 times that", advice="end them"
    )
    found = msgspec.structs.replace(judge(two_cards(), bands, 0.0), node=(fails,))
    for shown in ("\n".join(as_lines(found)), as_page(found)):
        assert "launch is 3 times that" in shown
        assert "end them" in shown


def test_one_component_of_an_unknown_type_has_the_points_of_other_types(
    bands: Bands,
) -> None:
    keys = measuring.chosen_keys(bands, "A100", "memory")
    assert keys == measuring.chosen_keys(bands, H100, "memory")
    assert [accept_points()[key][0].benchmark for key in keys] == ["reference"]
    assert len(measuring.chosen_keys(bands, "A100")) > 10


def test_json_follows_its_schema_and_the_schema_is_the_one_in_docs(run: object) -> None:
    assert callable(run)
    _, text = run(two_cards(slow=True), "--json")
    found = msgspec.json.decode(text, type=Acceptance)
    assert [each.verdict for each in found.cards] == ["pass", "fail"]
    shape = json.loads((ROOT / "docs" / "accept.schema.json").read_text())
    assert set(json.loads(text)) == set(shape["$defs"]["Acceptance"]["properties"])
    assert SCHEMAS["accept"] is Acceptance
    assert all(
        old == new for path, old, new in schemas(ROOT) if path.stem != "record.schema"
    )


def test_the_page_loads_nothing_and_escapes_foreign_text(bands: Bands) -> None:
    page = as_page(judge(two_cards(slow=True), bands, 0.0))
    assert "&lt;b&gt;CPU&lt;/b&gt;" in page
    assert "<b>CPU" not in page
    for loaded in ("http:", "https:", "src=", "<script", "<link"):
        assert loaded not in page
    assert 'Is this node as good as its kind? <span class="fail">fail' in page
    assert "remapped rows" in page
