"""Differences between two Records that may explain a changed number, besides what is being
compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hpml_plugins.model.alike_code import measuring_code
from hpml_plugins.model.formatting import quantity
from hpml_plugins.model.record import Record

#: Core rates that differ by more than this share are reported.
RATE_STEP = 0.2
#: The host's other GPUs count as in use above this share of the time. Utilisation and power are
#: only read when a point begins and ends; a single moment of use shows in at least one of them.
BUSY = 0.1
#: The host's other GPUs count as in use above this share of the power limit: an idle H200 draws
#: 75 to 125 of 700 W.
BUSY_POWER = 0.25
#: Memories of the cards that differ by more than this share are named: drivers reserve a little
#: more or less of it.
MEMORY_STEP = 0.05


#: The value of a fact that a Record lacks, where this is told at all.
NOT_KNOWN = "not known"


class Confounder(NamedTuple):
    """One fact in which two Records differ. a, b: its value in each, in words."""

    name: str
    a: str
    b: str

    @property
    def is_certain(self) -> bool:
        """Whether both Records tell the fact."""
        return NOT_KNOWN not in (self.a, self.b)

    def __str__(self) -> str:
        return f"{self.name} {self.a} → {self.b}"


def differences(a: Record, b: Record) -> list[Confounder]:
    """The facts in which the measurements A and B differ, in order of interest.

    What is being compared is excluded: for two machines, facts of a machine; for two commits, the
    code. A fact that one of them lacks does not count as a difference, except for the part of its
    host on which a Record was measured.
    """
    facts = _FACTS if a.machine != b.machine else {**_MACHINE_FACTS, **_FACTS}
    found = [Confounder(name, tell(a), tell(b)) for name, tell in facts.items()]
    if a.commit == b.commit:
        digests = [record.source.get("sha256", "")[:8] for record in (a, b)]
        found.append(Confounder("code of the plugin", *digests))
    for name in sorted(a.packages.keys() & b.packages.keys() - {"hpml-plugins"}):
        found.append(Confounder(name, a.packages[name], b.packages[name]))
    for name in sorted(a.data.keys() & b.data.keys()):
        prints = [_digits(record.data[name].get("fingerprint")) for record in (a, b)]
        found.append(Confounder(f"data set {name}", *prints))
    differing = [each for each in found if each.a and each.b and each.a != each.b]
    if "host" in (each.name for each in differing):
        # another host naturally has another boot
        differing = [each for each in differing if each.name != "boot"]
    return [*differing, *_conditions(a, b)]


def why_cause_is_open(a: Sequence[Record], b: Sequence[Record], *, on_host: bool) -> str:
    """Why the commit may not be what changed a value from A to B although no known fact differs, in
    words; "" if nothing else can be.

    a, b: the rounds of two commits on one machine.  on_host: whether the host determines the value:
    then other users of a shared host may have changed it, which no Record shows. Rounds measured
    in turns exclude that.
    """
    if on_host and _are_in_turns(a, b):
        return ""
    reasons = []
    if on_host and not all(_number(each.node, "host_cpus") for each in (*a, *b)):
        reasons.append("which host, and what share of it, is not known")
    elif on_host and any(map(_has_neighbours, (*a, *b))):
        reasons.append("on a shared host, not measured in turns")
    if _code(a[0]) == _code(b[0]):
        reasons.append("the plugin's files are the same")
    return "; ".join(reasons)


def _are_in_turns(a: Sequence[Record], b: Sequence[Record]) -> bool:
    """Whether rounds of each were measured between those of the other, in one boot of a host."""
    boots = {str(each.node.get("boot") or "") for each in (*a, *b)}
    spans = [[each.started for each in rounds] for rounds in (a, b)]
    overlap = 0 < max(map(min, spans)) <= min(map(max, spans))
    return len(boots) == 1 and "" not in boots and overlap


def _has_neighbours(record: Record) -> bool:
    """Whether other users of the host may have disturbed the measurement, visibly or not."""
    is_whole = describe_share(record) == "a whole machine"
    return not is_whole or record.is_busy


def _code(record: Record) -> tuple[str, str]:
    """The code of the plugin, and of the other repository's package that it measures."""
    return measuring_code(record), str(record.source.get("package", ""))


def describe_share(record: Record) -> str:
    """The part of its host on which a Record was measured: `1 of 2 GPUs, 16 of 32 CPUs of a virtual
    machine`.

    Others may use the rest. Empty if the Record does not say.
    """
    cpus = _number(record.node, "host_cpus")
    quota = _number(record.node, "cpu_quota")
    if not cpus:
        return ""
    gpus = _number(record.node, "host_gpus")
    own_cpus = _number(record.node, "num_cpu")
    parts = [f"{len(record.gpus)} of {gpus:g} GPUs"] if len(record.gpus) < gpus else []
    if own_cpus < cpus:
        parts.append(f"{own_cpus:g} of {cpus:g} CPUs")
    if quota:
        parts.append(f"the time of {quota:g} CPUs")
    machine = "virtual machine" if record.node.get("virtual") else "machine"
    return f"{', '.join(parts)} of a {machine}" if parts else f"a whole {machine}"


def unusual_conditions(record: Record) -> list[str]:
    """What else happened on the machine during the measurement and may have disturbed it, in
    words."""
    found = []
    if record.is_busy:
        found.append(f"other processes used {_other_cpus(record)}")
    if others := record.conditions.get("other_processes"):
        found.append(f"processes of others on the GPU: {others:g}")
    if "other_gpus" in record.conditions and (neighbours := _neighbours(record)).busy:
        found.append(f"other GPUs of the host {neighbours.text}")
    return found


def format_card(card: str) -> str:
    """The abbreviated UUIDs of one or several cards, or of a boot of the host.  card: see
    `card_of`."""
    return " + ".join(map(_digits, card.split(",")))


def _number(facts: Mapping[str, Any], key: str) -> float:
    value = facts.get(key)
    return value if isinstance(value, int | float) else 0


def _conditions(a: Record, b: Record) -> Iterator[Confounder]:
    """Relevant differences in what else happened on the machine."""
    shares = [describe_share(each) or NOT_KNOWN for each in (a, b)]
    if shares[0] != shares[1]:
        yield Confounder("share of the host", *shares)
    if a.is_busy != b.is_busy and all("other_cpus" in each.conditions for each in (a, b)):
        yield Confounder("CPUs used by other processes", _other_cpus(a), _other_cpus(b))
    rates = [_core_rate(each) for each in (a, b)]
    if 0 < min(rates) < max(rates) / (1 + RATE_STEP):
        yield Confounder("core's rate", *(quantity(rate, "1/s") for rate in rates))
    memories = [_card_memory(each) for each in (a, b)]
    if a.machine == b.machine and 0 < min(memories) < max(memories) / (1 + MEMORY_STEP):
        yield Confounder(
            "memory of the card", *(quantity(memory, "B") for memory in memories)
        )
    ours = _neighbours(a)
    theirs = _neighbours(b)
    if ours.text and theirs.text and ours.idle != theirs.idle:
        yield Confounder("other GPUs of the host", ours.text, theirs.text)


def _card_memory(record: Record) -> float:
    """The memory of the smallest card, B; 0 if unknown."""
    return min((_number(gpu, "memory") for gpu in record.gpus), default=0)


def _mig(record: Record) -> str:
    """Whether MIG is on, and which part of its card a MIG device is; empty if the card does not
    support MIG."""
    return _joined(map(_format_mig, record.gpus))


def _format_mig(gpu: Mapping[str, Any]) -> str:
    if gpu.get("mig") is None:
        return ""
    if not gpu["mig"]:
        return "off"
    _, _, profile = str(gpu.get("name", "")).partition(" MIG ")
    return profile or "on, which part of the card is not known"


def _core_rate(record: Record) -> float:
    """The median of `core_rate` over the Record's CPU times, 1/s; 0 if there is none."""
    found = [metric.info.get("core_rate") for metric in record.metrics.values()]
    return statistics.median(
        [each for each in found if isinstance(each, int | float)] or [0.0]
    )


def _other_cpus(record: Record) -> str:
    return f"{record.conditions['other_cpus']:.1f} of {record.conditions.get('cores', 0):g} CPUs"


class _Neighbours(NamedTuple):
    """The use of the host's other GPUs, in words; empty if the Record does not say; neither busy
    nor idle if unknown."""

    text: str
    busy: bool = False
    idle: bool = False


def _neighbours(record: Record) -> _Neighbours:
    if "other_gpus" not in record.conditions:
        # no other GPUs: the node has all GPUs of the host
        none = _number(record.node, "host_gpus") == len(record.gpus) > 0
        return _Neighbours("idle", idle=True) if none else _Neighbours("")
    conditions = record.conditions
    if not {"other_gpus_utilization", "other_gpus_power"} & conditions.keys():
        return _Neighbours(NOT_KNOWN)  # MIG devices: NVML reports neither value
    used = conditions.get("other_gpus_utilization", 0.0)
    power = conditions.get("other_gpus_power", 0.0)
    limit = max((_number(gpu, "power_limit") for gpu in record.gpus), default=0)
    busy = used >= BUSY or power > BUSY_POWER * limit > 0
    text = f"{'in use' if busy else 'idle'} ({power:.0f} W, {used:.0%})"
    return _Neighbours(text, busy=busy, idle=not busy)


def _node_fact(key: str) -> Callable[[Record], str]:
    return lambda record: str(record.node.get(key) or "")


def _gpu_fact(key: str, unit: str = "") -> Callable[[Record], str]:
    """A fact of the GPUs, once if it is the same for all."""
    return lambda record: _joined(_format_fact(gpu.get(key), unit) for gpu in record.gpus)


def _joined(texts: Iterable[str]) -> str:
    """The distinct texts, joined."""
    return " + ".join(dict.fromkeys(filter(None, texts)))


def _format_fact(value: object, unit: str = "") -> str:
    if isinstance(value, float):
        return f"{value:g}{unit}"
    return "" if value is None else str(value)


def _info(key: str) -> Callable[[Record], str]:
    """An info of the samples, over all metrics that have it."""

    def tell(record: Record) -> str:
        values = [each.info[key] for each in record.metrics.values() if key in each.info]
        # an explanation follows a colon
        words = {str(text).partition(":")[0] for text in values}
        return " + ".join(sorted(words))

    return tell


def _digits(value: object) -> str:
    """The first digits of a hash or UUID, enough to distinguish two."""
    return (
        str(value or "")
        .removeprefix("MIG-")
        .removeprefix("GPU-")
        .removeprefix("sha256:")[:8]
    )


def _regime(record: Record) -> str:
    if record.status != "ok":
        return ""
    if any(each.regime for each in record.metrics.values()):
        return "sustained"
    return "throttled" if record.throttled else "not throttled"


def _load(record: Record) -> str:
    """Whether the card rested between groups of steps, where clocks settled."""
    if _regime(record) != "sustained":
        return ""
    settled = [each for each in record.metrics.values() if each.settled]
    return _joined(str(each.info.get("load", "with rests")) for each in settled)


#: Name → the fact in words; empty if the Record lacks it. These are facts of a machine:
_MACHINE_FACTS: dict[str, Callable[[Record], str]] = {
    "card": lambda record: _joined(_digits(gpu.get("uuid")) for gpu in record.gpus),
    "host": lambda record: _digits(record.node.get("host")),
    "boot": lambda record: _digits(record.node.get("boot")),
    "CPU": _node_fact("cpu"),
    "power limit": _gpu_fact("power_limit", " W"),
    "links of the card": _gpu_fact(
        "links"
    ),  # a node of one GPU, or one GPU of a node with several
    "NUMA node of the card": _gpu_fact("numa"),
    "NUMA nodes of the CPUs": lambda record: str(record.node.get("cpu_numa") or "").strip(
        "[(,)]"
    ),
    "kernel": _node_fact("os"),
}
_FACTS: dict[str, Callable[[Record], str]] = {
    "driver": _node_fact("driver"),
    "CUDA": _node_fact("cuda"),
    "Python": _node_fact("python"),
    "NCCL": _info("nccl"),
    "MIG": _mig,
    "cores": _node_fact("num_cpu"),
    "other processes on the card": lambda record: _format_fact(
        record.conditions.get("other_processes")
    ),
    "rounds": lambda record: str(record.measured_rounds) if record.status == "ok" else "",
    "regime": _regime,
    "load": _load,
    "timer": _info("timer"),
}
