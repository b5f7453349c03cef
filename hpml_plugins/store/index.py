"""Which of the Records of a point counts: what is current, what is on the line of a branch, what is
missing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from hpml_plugins.model.record import Record
from hpml_plugins.store.history import CommitOrder, Standing


class _Stored(Protocol):
    """A Record, or what a reader keeps of one."""

    @property
    def commit(self) -> str:
        """In full; empty for none."""

    @property
    def status(self) -> str:
        """See `Record.status`."""

    @property
    def started(self) -> float:
        """Unix time, s."""

    @property
    def of_stack(self) -> bool:
        """See `Record.of_stack`."""


Place = TypeVar("Place", bound=Hashable)
Item = TypeVar("Item", bound=_Stored)


def of_node(items: Sequence[Item]) -> Sequence[Item]:
    """Those that were measured with the node's own packages; all where there are no such."""
    return [each for each in items if not each.of_stack] or items


class _Precedence(NamedTuple):
    """Of several Records of a point on a machine the one of the highest rank counts; of equal ones
    the one that was stored last."""

    is_of_node: bool
    standing: Standing
    place: int
    is_measured: bool
    started: float


class Index(Generic[Place, Item]):
    """What is stored of each place, a point on a machine, and what of it counts.

    The only rule by which a Record counts before another of its place, in this order:

    - It was measured with the node's own packages. An environment that was installed for a software
      stack is an experiment beside the history; it stands only for a point without any other.
    - Its commit stands nearer to the line of the branch (`Standing`): in the line, which git knows;
      then placed there by its date alone, for the repository lacks it; then of no known place.
    - Its commit is newer: the history is one of commits, and an old one may be measured later.
    - It was measured, rather than skipped or failed: a failure does not take the numbers away that
      another run of the same commit gave.
    - It was started later: a commit is measured again where the earlier run is in doubt.

    A Record of a commit outside the line of the first branch says nothing about that branch; it is
    kept apart, for the lines of the others. What was retracted has no numbers, and counts as
    missing where there is nothing else.
    """

    def __init__(self, order: Mapping[str, int]) -> None:
        """order: see `commit_order`; of a plain mapping, commit → place, all commits are on one
        line."""
        self.order = CommitOrder.of(order)
        self._items: dict[Place, list[Item]] = {}
        self._ranked: dict[Place, tuple[list[Item], list[Item]]] = {}
        self._lines: dict[str, dict[Place, list[Item]]] = {}

    def add(self, place: Place, item: Item) -> None:
        """Take in what is stored of a place."""
        self._items.setdefault(place, []).append(item)
        self._ranked.pop(place, None)
        self._lines.clear()

    def __iter__(self) -> Iterator[Place]:
        return iter(self._items)

    @property
    def branches(self) -> list[str]:
        """Those whose lines it has; "" for the first."""
        return ["", *(line.branch for line in self.order.lines[1:])]

    def standing(self, item: _Stored, branch: str = "") -> Standing:
        """How its commit stands to the line of a branch; "": the first."""
        return self.order.standing(item.commit, self.order.line(branch))

    def rank(self, item: _Stored, branch: str = "") -> _Precedence:
        """By which it counts for a branch."""
        place = self.order.get(item.commit, -1)
        measured = item.status == "ok"
        return _Precedence(
            not item.of_stack, self.standing(item, branch), place, measured, item.started
        )

    def on_line(self, place: Place) -> Sequence[Item]:
        """All that counts for the first branch, ascending by rank."""
        return self._parts(place)[0]

    def outside(self, place: Place) -> Sequence[Item]:
        """What is outside the line of the first branch, ascending by rank."""
        return self._parts(place)[1]

    def stored(self, place: Place) -> Sequence[Item]:
        """Both."""
        on_line, outside = self._parts(place)
        return [*on_line, *outside]

    def _parts(self, place: Place) -> tuple[list[Item], list[Item]]:
        if place not in self._ranked:
            parts: tuple[list[Item], list[Item]] = ([], [])
            for item in sorted(self._items.get(place, ()), key=self.rank):
                parts[self.standing(item) is Standing.OUTSIDE].append(item)
            self._ranked[place] = parts
        return self._ranked[place]

    def newest(self, place: Place) -> Item | None:
        """What is known last of a place; a retracted Record only where there is nothing else, None
        where nothing is stored."""
        everything = self.on_line(place)
        known = [each for each in everything if each.status != "retracted"] or everything
        return known[-1] if known else None

    def current(self, place: Place) -> Item | None:
        """The Record that stands for a place: of those that were measured. None where none was."""
        return next(
            (each for each in reversed(self.on_line(place)) if each.status == "ok"), None
        )

    def lines(self, branch: str = "") -> Mapping[Place, list[Item]]:
        """Of each place what counts of each published commit, oldest first.

        Of another branch than the first, of the places that were measured at a commit of its own;
        its lines have what both branches went through too, so that there is something to compare
        with.
        """
        if branch not in self._lines:
            found = {}
            for place in self:
                if (
                    items := self._of_branch(place, branch)
                    if branch
                    else self.on_line(place)
                ):
                    found[place] = self._by_commit(items)
            self._lines[branch] = found
        return self._lines[branch]

    def _of_branch(self, place: Place, branch: str) -> Sequence[Item]:
        outside = self.outside(place)
        if not any(self.standing(each, branch) is Standing.OWN for each in outside):
            return ()
        placed = [
            each
            for each in self.stored(place)
            if self.standing(each, branch) > Standing.UNPLACED
        ]
        return sorted(placed, key=lambda each: self.rank(each, branch))

    def _by_commit(self, ranked: Sequence[Item]) -> list[Item]:
        placed = [each for each in of_node(ranked) if each.commit in self.order]
        last = {self.order[each.commit]: each for each in placed}
        return [last[place] for place in sorted(last)]


def current_records(records: Iterable[Record], order: Mapping[str, int]) -> list[Record]:
    """The Record that stands for each point on each machine, see `Index`: by machine and benchmark,
    the points of a benchmark in the order in which they were first met. Each version of a benchmark
    has points of its own."""
    index = Index[tuple[str, str, str], Record](order)
    for record in records:
        if record.status == "ok":
            index.add((record.machine, record.benchmark, record.point), record)
    found = filter(None, map(index.current, index))
    return sorted(found, key=lambda record: (record.machine, record.benchmark))
