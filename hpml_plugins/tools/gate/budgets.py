"""The allowed slow-down of each metric: from the registry, and from `--budget`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpml_plugins.analysis import compared_metrics
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import Declared
from hpml_plugins.model import Record
from hpml_plugins.registry import PluginEntry

#: Default of the allowed slow-down, %.
DEFAULT_BUDGET = 5.0


def budgets_of(entry: PluginEntry) -> dict[str, float]:
    """Benchmark or BENCHMARK.METRIC → its budget in the registry, %."""
    found: dict[str, float] = {}
    for benchmark, budgets in entry.gate.items():
        if isinstance(budgets, Mapping):
            found |= {
                f"{benchmark}.{metric}": percent for metric, percent in budgets.items()
            }
        else:
            found[benchmark] = budgets
    return found


def budget_of(budgets: Mapping[str, float], name: str, default: float) -> float:
    """The budget of BENCHMARK.METRIC or of a benchmark: its own, else that of its benchmark."""
    benchmark = name.rpartition(".")[0]
    return budgets.get(name, budgets.get(benchmark, default))


class Budgets:
    """The allowed slow-down of each metric: `--budget 5 --budget attention=2 --budget
    attention.memory=1`.

    entries: of the registry, with budgets in `gate`. The most specific name counts; for the same
    name, the option does.
    """

    def __init__(self, words: Sequence[str], entries: Sequence[PluginEntry] = ()) -> None:
        parsed = list(map(_parse, words))
        asked = dict(parsed)
        if len(asked) < len(parsed):
            names = [name for name, _ in parsed]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"--budget is given twice for {twice or 'all'}; leave out one")
        self._default = asked.pop("", DEFAULT_BUDGET)
        self._asked = asked.keys()
        self._percent: dict[str, float] = {}
        for entry in entries:
            self._percent |= budgets_of(entry)
        self._percent |= asked

    def of(self, record: Record) -> dict[str, float]:
        """The budgets of a Record's metrics that have a better direction: 0.05 for 5 %."""
        return {
            name: budget_of(self._percent, f"{record.benchmark}.{name}", self._default)
            / 100
            for name in compared_metrics(record)
            if record.metrics[name].direction
        }

    def refuse_unknown(
        self, benchmarks: Iterable[Declared], asvs: Iterable[str] = ()
    ) -> None:
        """Raise UsageError for an option whose name is neither one of these benchmarks nor a metric
        of one. asvs: names of asv's own benchmarks."""
        known = list(asvs)
        for benchmark in benchmarks:
            metrics = [f"{benchmark.name}.{metric.name}" for metric in benchmark.metrics]
            known += [benchmark.name, *metrics]
        if unknown := self._asked - known:
            name = min(unknown)
            raise UsageError(
                f"--budget: no benchmark or metric {name!r}; {nearest(name, known)}"
            )


def _parse(word: str) -> tuple[str, float]:
    """Name, "" for all, and per cent, from `5` or `attention=2`. Raises UsageError for other
    texts."""
    name, _, text = word.rpartition("=")
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 < percent < 1000:
        raise UsageError(
            f"--budget {word!r} is not PERCENT or NAME=PERCENT, above 0; for example 5 or"
            " attention=2"
        )
    return name, percent
