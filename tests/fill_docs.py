"""Make the quoted numbers of README.md and docs/ anew from results/: `make docs`. `--check` writes nothing.

See `hpml_plugins.report.quotes` for how a text quotes a number. Here there is one kind of quote more, `backtest NAME`:
the table that trying a statistic on the Records gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import backtest_levels

from hpml_plugins.asv.configuration import find_history
from hpml_plugins.errors import HpmlError, nearest
from hpml_plugins.host import make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.figures import collect, tabulate
from hpml_plugins.report.quotes import Quotable, Quote, fill
from hpml_plugins.report.reading import read_history
from hpml_plugins.store import commit_order

ROOT = Path(__file__).resolve().parent.parent
#: Name → what gives the table, of the project's folder and a folder of results.
BACKTESTS: dict[str, Callable[[Path, Path], str]] = {"levels": backtest_levels.backtest}


def quotable(root: Path, results: Path) -> Quotable:
    """Everything that can be quoted from results, with the plugins of this checkout."""
    host = make_host(read_registry(root / "registry.yaml"))
    repository, branches = find_history(root)
    history = read_history(results, host, {}, commit_order(repository, results, branches), {}, print)
    current = history.current()
    drawables = [each for plugin in host.load_all() for each in tabulate(plugin, collect(plugin), current)]
    return Quotable(history, drawables)


def filled(root: Path, results: Path) -> Iterator[tuple[Path, str, str]]:
    """Each Markdown file with its text and what that should be. Raises HpmlError for a quote of what is not there."""
    texts = {
        path: path.read_text(encoding="utf-8") for path in (root / "README.md", *sorted(root.glob("docs/**/*.md")))
    }
    quoting = {path: text for path, text in texts.items() if "<!--= " in text}
    known = quotable(root, results) if quoting else None
    for path, text in quoting.items():
        assert known is not None
        name = str(path.relative_to(root))
        yield path, text, fill(text, name, lambda quote: answer(quote, known, root, results))


def answer(quote: Quote, known: Quotable, root: Path, results: Path) -> str:
    """What a quote of a text here stands for. Raises HpmlError for one of what is not there."""
    if quote.kind != "backtest":
        return known.answer(quote).text
    if quote.name not in BACKTESTS:
        raise HpmlError(f"no back-test {quote.name!r}; {nearest(quote.name, list(BACKTESTS))}", quote.where)
    return f"\n{BACKTESTS[quote.name](root, results)}\n"


def main() -> int:
    """Write the files that differ; with --check exit status 1 instead."""
    check = "--check" in sys.argv[1:]
    try:
        stale = [(path, new) for path, old, new in filled(ROOT, ROOT / "results") if new != old]
    except HpmlError as error:
        print(error, file=sys.stderr)
        return 2
    for path, new in stale:
        print(f"{path.relative_to(ROOT)}: {'stale; run `make docs`' if check else 'written'}")
        if not check:
            path.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
