"""The hooks of mkdocs for the documentation: pages of the reference, made from the code, and links
of the Markdown files that lead to other places on the site."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hpml_plugins import hookspecs
from hpml_plugins.cli import LazyCommand, group
from hpml_plugins.model.record import Record
from hpml_plugins.registry import json_schema

ROOT = Path(__file__).resolve().parent.parent.parent
#: A Record of results/ that is short enough to be read whole, and explains every field: the first
#: of this file. No Record changes: the reference is made of docs/ and the code alone.
EXAMPLE = ("results/cpu-intel-xeon-x2/records/ff12e481.jsonl", "vecadd_cpu")
#: Every environment variable that is read, by whom it is for, and what it does. A test holds that
#: none is missing.
ENVIRONMENT = {
    "what is measured": {
        "HPML_PROFILE": "the profile that `asv run` measures; without it `full`",
        "HPML_LIMIT": "seconds, or `9min`: measure whole points within this time",
        "HPML_DATA": "folders of data sets, separated by `:`",
        "HPML_SHARD": "`I/N`: the points that this job of N measures; set by `hpml submit`",
        "HPML_TTA_RECIPES": "a YAML file with recipes of your own for `tta`",
        "HPML_TTA_RUNS": "where `tta` keeps the finished runs of a set",
        "HPML_TTA_IMAGES": "a folder with pictures, one folder per class, that `tta` judges too",
        "HPML_TTA_CIFAR10_1": "the folder `datasets` of CIFAR-10.1, judged by `tta` as well",
        "HPML_SCALING_TRACES": "a folder that gets the Chrome trace of each rank of `scaling`",
        "HPML_FLIP_BIT": "`float32 product`: flips one bit in `bits`, to try `hpml accept`",
    },
    "limits": {
        "HPML_PROCESS_LIMIT": "processes that a point may have at once; 2048",
        "HPML_IMPORT_LIMIT": "seconds in which all plugins must be imported; 30",
        "HPML_DRAWING_LIMIT": "seconds in which a plugin must have drawn its figures; 300",
    },
    "set for processes, not by users": {
        "HPML_SUITE": "the generated suite that asv's processes read",
        "HPML_RESULTS": "the folder of results of this run",
        "HPML_MACHINE": "the name of this machine in the results",
        "HPML_PACKAGE": "the package of the commit that is measured",
        "HPML_STACK": "the stack of packages that was installed for a commit",
        "HPML_REFUSAL": "why asv must not measure, in one line",
        "HPML_POINT_OF": "marks the processes of a point, so that leftovers are found",
        "HPML_QUEUES": "the queues of a job that measures several targets side by side",
        "HPML_ASV_RESULTS": "where the gate's asv keeps its results",
        "HPML_ASV_ENVIRONMENTS": "where the gate's asv keeps its environments",
        "HPML_BUNDLE_SITE": "the packages of a bundle, which `hpml bundle --ask` leaves out",
        "HPML_FOLDER": "the project's folder, in the GitLab file of `hpml init --ci`",
        "HPML_GITLAB_TOKEN": "the access token of `hpml comment`, set in GitLab",
    },
}
_QUOTES = re.compile(r"<!--= .*? -->(.*?)<!--/-->", re.DOTALL)
_VERBATIM = re.compile(
    r"(<(?:pre|script|style|svg|textarea)\b.*?</(?:pre|script|style|svg|textarea)>)",
    re.DOTALL,
)
_INDENT = re.compile(r"\s*\n\s*")
_LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\((?P<to>\.\./[^)\s]+)\)")
_PAGE = re.compile(r"\.\./benchmarks/pages/(?P<stem>[\w-]+)\.md(?P<anchor>#.*)?")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {
        "api": api,
        "hooks": hooks,
        "commands": commands,
        "registry": registry,
        "record": record,
        "environment": environment,
    }
    for name, write in pages.items():
        text = "\n".join(write())
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Indents stay behind, a quarter of the bytes; in code, scripts and drawings they stand."""
    parts = _VERBATIM.split(output)
    parts[::2] = [_INDENT.sub("\n", text) for text in parts[::2]]
    return "".join(parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove what no page reads: source maps, and the search's other languages."""
    assets = Path(config.site_dir) / "assets"
    for path in (*assets.rglob("*.map"), *assets.glob("javascripts/lunr/**/*.js")):
        path.unlink()


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The numbers without the comments that say where they are from; links that lead out of docs/
    lead to the page of the published site, or are plain text."""
    return _LINK.sub(_lead, _QUOTES.sub(r"\1", markdown))


def _lead(link: re.Match[str]) -> str:
    found = _PAGE.fullmatch(link["to"])
    if not found:
        return f"{link[1]} (`{link['to'].removeprefix('../')}`)"
    address = f"../questions-{found['stem']}.html{found['anchor'] or ''}"
    return f'<a href="{address}">{link[1]}</a>'


def api() -> Iterator[str]:
    """Every public name with its signature and documentation."""
    yield "# API\n\nFor authors of plugins and scripts: every public name. Generated from the code."
    for module in ("hpml_plugins", "hpml_plugins.testing"):
        yield f"\n## {module}\n"
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            yield from _documented(name, getattr(found, name))


def _documented(name: str, thing: object) -> Iterator[str]:
    yield f"\n### {name}\n"
    if callable(thing):
        yield f"```python\n{name}{_signature(thing)}\n```\n"
    yield _text(thing)
    if inspect.isclass(thing):
        members = [
            (key, value) for key, value in vars(thing).items() if not key.startswith("_")
        ]
        for key, value in members:
            plain = (
                value.__func__ if isinstance(value, classmethod | staticmethod) else value
            )
            if inspect.isfunction(plain):
                yield f"\n**`{key}{_signature(plain)}`**\n\n{_text(plain)}"
            elif isinstance(plain, property):
                yield f"\n**`{key}`**\n\n{_text(plain)}"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(…)"
    return re.sub(r" at 0x[0-9a-f]+", "", str(signature))


def _text(thing: object) -> str:
    """The documentation of a value as Markdown, or nothing where it is that of its type."""
    if dataclasses.is_dataclass(thing) or not isinstance(
        thing, str | int | float | tuple | dict
    ):
        return inspect.getdoc(thing) or ""
    return f"`{thing!r}`"


def hooks() -> Iterator[str]:
    """The extension points."""
    yield f"# Hooks\n\nFor authors of plugins. {inspect.getdoc(hookspecs)}"
    for name, thing in vars(hookspecs).items():
        if hasattr(thing, "hpml_spec"):
            yield f"\n## {name}\n\n```python\n{name}{_signature(thing)}\n```\n\n{_text(thing)}"


def commands() -> Iterator[str]:
    """The help of each command of `hpml`."""
    yield "# Commands and options\n\nFor users of the command line: what `--help` prints."
    parent = click.Context(group, info_name="hpml")
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if isinstance(command, LazyCommand):
            command = command.load()
        assert command is not None
        own = click.Context(command, parent, name, terminal_width=88, max_content_width=88)
        yield f"\n## hpml {name}\n\n```text\n{command.get_help(own)}\n```"


def registry() -> Iterator[str]:
    """The keys of registry.yaml."""
    yield "# Keys of registry.yaml\n\nFor everybody who writes one. Generated from the schema."
    schema = json_schema()
    for name, shape in schema["$defs"].items():
        yield from _keys(name, shape)


def _keys(name: str, shape: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in shape:
        return
    yield f"\n## {name}\n\n{shape.get('description', '')}\n\n| key | type | default | meaning |"
    yield "|---|---|---|---|"
    told = _told(shape.get("description", ""))
    for key, value in shape["properties"].items():
        default = f"`{json.dumps(value['default'])}`" if "default" in value else "required"
        meaning = _cell(_meaning(value) or told.get(key, ""))
        yield f"| `{key}` | {_type(value)} | {default} | {meaning} |"


def _told(documentation: str) -> dict[str, str]:
    """What the documentation of a class says of each field: `name, other: what.  next: …`."""
    names = r"[a-z_]+(?:, [a-z_]+)*"
    sentence = rf"(?:(?<=\. )|^)({names}): (.+?)(?=\. {names}: |\.?$)"
    found = re.findall(sentence, " ".join(documentation.split()))
    return {name: text for several, text in found for name in several.split(", ")}


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"].rpartition("/")[2])
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(map(_type, value["anyOf"])))
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if value.get("type") == "array":
        return f"list of {_type(value.get('items') or {})}"
    if value.get("type") == "object" and value.get("additionalProperties"):
        return f"mapping to {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def _meaning(value: Mapping[str, Any]) -> str:
    told = [value, *value.get("anyOf", ())]
    return next((each["description"] for each in told if "description" in each), "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def record() -> Iterator[str]:
    """The fields of a Record, and a Record of results/ with what each field says."""
    yield "# Fields of a Record\n\nFor programmers who read Records. Generated from the schema and"
    yield "from results/. The JSON schema is `docs/record.schema.json`.\n\n## An example\n"
    shown = _shortened(_example())
    yield f"```json\n{json.dumps(shown, indent=2, ensure_ascii=False)}\n```"
    schema = json_schema(Record)
    for name, shape in schema["$defs"].items():
        described = {**shape, "description": inspect.cleandoc(shape.get("description", ""))}
        yield from _keys(name, described)


def _example() -> dict[str, Any]:
    file, benchmark = EXAMPLE
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        found = msgspec.json.decode(line)
        if found.get("benchmark") == benchmark and found.get("status") == "ok":
            return dict(found)
    raise LookupError(f"{file}: no Record of {benchmark}")


def _shortened(value: Any) -> Any:
    """Long lists with their first values alone, and how many there are."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        kept = [_shortened(each) for each in value[:3]]
        return kept if len(value) <= 3 else [*kept, f"… {len(value)} in all"]
    return value


def environment() -> Iterator[str]:
    """All environment variables that are read."""
    yield "# Environment variables\n\nFor everybody who runs commands in scripts and jobs."
    for group_name, variables in ENVIRONMENT.items():
        yield f"\n## {group_name.capitalize()}\n\n| variable | meaning |\n|---|---|"
        for name, meaning in variables.items():
            yield f"| `{name}` | {meaning} |"
