from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT

from hpml_plugins.errors import RegistryError, UsageError
from hpml_plugins.registry import json_schema
from hpml_plugins.tools.cluster.config import Cluster, read_cluster

HEAD = "version: 1\ntargets:\n"
#: what is wrong → (the text, the line it stands on, what the error must say)
BAD = {
    "nothing": ("", 0, "must be a mapping"),
    "no targets": ("version: 1\ntargets: []\n", 2, "length >= 1"),
    "unknown key": (
        HEAD + "  - {name: a, partion: x}\n",
        3,
        "unknown key 'partion'; did you mean 'partition'?",
    ),
    "unknown key of python": (
        HEAD + "  - name: a\n    python:\n      module: [cuda]\n",
        5,
        "unknown key 'module'; did you mean 'modules'?",
    ),
    "a name with a slash": (HEAD + "  - {name: a/b}\n", 3, "matching regex"),
    "no time at all": (HEAD + "  - {name: a, hours: 0}\n", 3, "> 0"),
    "time without an end": (HEAD + "  - {name: a, hours: .inf}\n", 3, "<= 8784"),
    "no number of hours": (HEAD + "  - {name: a, hours: .nan}\n", 3, "> 0"),
    "a name twice": (HEAD + "  - {name: a}\n  - {name: a}\n", 4, "name 'a' is taken by"),
    "a machine twice": (
        HEAD + "  - {name: a}\n  - name: b\n    machine: a\n",
        5,
        "machine 'a' is taken by",
    ),
    "two ways to Python": (
        HEAD + "  - name: a\n    python: {venv: v, container: c.sif}\n",
        4,
        "either a venv or a container",
    ),
    "a quote without its other half": (
        HEAD + '  - {name: a, python: {command: "python \'"}}\n',
        3,
        "No closing quotation",
    ),
    "a name with a line break": (HEAD + '  - {name: "a\\n"}\n', 3, "matching regex"),
    "a machine with a line break": (
        HEAD + '  - {name: a, machine: "a\\n"}\n',
        3,
        "matching regex",
    ),
    "a jobs folder with a line break": (
        'version: 1\njobs: "a\\nb"\ntargets: [{name: a}]\n',
        2,
        "a line break in its name",
    ),
    "an option with a blank": (
        HEAD + "  - {name: a, options: {a b: 1}}\n",
        3,
        "'a b' is no option of sbatch",
    ),
    **{
        f"a control character in {key}": (
            HEAD + f"  - name: a\n    {key}: {value}\n",
            4,
            f"{key} holds a line break",
        )
        for key, value in {
            "constraint": '"a100\\n#SBATCH --uid=0"',
            "partition": '"p\\ncurl evil.example"',
            "account": '"a\\r"',
            "qos": '"\\0"',
            "options": '{comment: "x\\ny"}',
            "python": '{setup: ["true\\nid"], command: p}',
        }.items()
    },
    "a module with a line break": (
        HEAD + '  - name: a\n    python: {modules: ["x\\ny"]}\n',
        4,
        "python holds a line break",
    ),
    "a Python with an escape": (
        HEAD + '  - name: a\n    python: {venv: "\\e[31m"}\n',
        4,
        "python holds a line break",
    ),
    "queues on two nodes": (
        HEAD + "  - name: a\n    side_by_side: true\n    nodes: 2\n",
        5,
        "side_by_side is for one node",
    ),
    "an option that is a key": (
        HEAD + "  - name: a\n    options: {gpus-per-node: 3}\n",
        4,
        "write the target's key gpus instead",
    ),
    "an option that hpml jobs relies on": (
        HEAD + "  - name: a\n    options: {output: x}\n",
        4,
        "hpml submit gives sbatch its own",
    ),
    "an option that is false": (
        HEAD + "  - name: a\n    options: {exclusive: false}\n",
        4,
        "leave the option out",
    ),
    "a warning before the start": (
        HEAD + "  - name: a\n    hours: 1\n    warning: 7200\n",
        4,
        "would come before the start",
    ),
    "queues without a GPU": (
        HEAD + "  - name: a\n    side_by_side: true\n    gpus: 0\n",
        5,
        "side_by_side needs a GPU",
    ),
    "nodes here": (
        HEAD + "  - name: a\n    executor: local\n    nodes: 2\n",
        5,
        "a local target has one node",
    ),
    "two commands of Python": (
        HEAD + "  - name: a\n    python: {venv: v, command: python3}\n",
        4,
        "either a venv or a command",
    ),
    "a partition here": (
        HEAD + "  - {name: a, executor: local, partition: x}\n",
        3,
        "a local target has no partition",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_cluster_file_is_refused_in_one_line_with_its_place(
    what: str, tmp_path: Path
) -> None:
    text, line, message = BAD[what]
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(RegistryError) as caught:
        read_cluster(path, tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}")


def test_targets_are_chosen_by_name_and_a_wrong_one_is_answered_with_the_nearest(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    cluster = read_cluster(
        write(
            "cluster.yaml",
            "version: 1\njobs: ../jobs\ntargets: [{name: h100}, {name: a100}]\n",
        ),
        tmp_path,
    )
    assert [target.name for target in cluster.choose(())] == ["h100", "a100"]
    assert [target.name for target in cluster.choose(("a100",))] == ["a100"]
    assert cluster.jobs == str(tmp_path.parent / "jobs")
    with pytest.raises(UsageError, match="no target 'h10'; did you mean 'h100'"):
        cluster.choose(("h10",))


def test_the_cluster_schema_in_docs_is_the_one_that_is_checked() -> None:
    assert json.loads((ROOT / "docs" / "cluster.schema.json").read_text()) == json_schema(
        Cluster
    )


def test_the_example_of_the_guide_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    lines = page[page.index("    version: 1") :].splitlines()
    end = next(
        number for number, line in enumerate(lines) if line and not line.startswith("    ")
    )
    path = tmp_path / "cluster.yaml"
    path.write_text("\n".join(line.removeprefix("    ") for line in lines[:end]))
    assert [target.name for target in read_cluster(path, tmp_path).targets] == [
        "v100-x1",
        "a100-x4",
        "h100-x8",
    ]
