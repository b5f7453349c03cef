"""Which Record of a point counts: the current one, those on the line of a branch, and what is
missing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from hpml_plugins.model.record import Record
from hpml_plugins.store.history import CommitOrder, Standing


class _Stored(Protocol):
    """A Record, or the part of it that a reader keeps."""

    @property
    def commit(self) -> str:
        """The full hash; empty for none."""

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
    """The items measured with the node's own packages; all items if there are none."""
    return [each for each in items if not each.of_stack] or items


class _Precedence(NamedTuple):
    """Sort key: of several Records of a point on a machine the highest counts; in a tie, the one
    that was stored last."""

    is_of_node: bool
    standing: Standing
    place: int
    is_measured: bool
    started: float


class Index(Generic[Place, Item]):
    """The stored items of each place (a point on a machine), and which of them count.

    This is the only rule by which one Record of a place takes precedence over another, in this
    order:

    - It was measured with the node's own packages. An environment installed for a software stack is
      an experiment outside the history; it counts only for a point that has no other Record.
    - Its commit is closer to the line of the branch (`Standing`): in the line according to git;
      then placed there by its date alone, because the repository lacks it; then unplaced.
    - Its commit is newer: the history is ordered by commit, and an old one may be measured later.
    - It was measured, rather than skipped or failed: a failure does not hide the numbers of another
      run of the same commit.
    - It was started later: a commit is measured again if the earlier run is in doubt.

    A Record of a commit outside the line of the first branch says nothing about that branch; it is
    kept separately, for the lines of the other branches. A retracted Record has no numbers, and
    counts as missing if there is nothing else.
    """

    def __init__(self, order: Mapping[str, int]) -> None:
        """order: see `commit_order`. With a plain mapping of commit → place, all commits are on one
        line."""
        self.order = CommitOrder.of(order)
        self._items: dict[Place, list[Item]] = {}
        self._ranked: dict[Place, tuple[list[Item], list[Item]]] = {}
        self._lines: dict[str, dict[Place, list[Item]]] = {}

    def add(self, place: Place, item: Item) -> None:
        """Add a stored item of a place."""
        self._items.setdefault(place, []).append(item)
        self._ranked.pop(place, None)
        self._lines.clear()

    def __iter__(self) -> Iterator[Place]:
        return iter(self._items)

    def __contains__(self, place: object) -> bool:
        return place in self._items

    @property
    def branches(self) -> list[str]:
        """The branches that have a line; "" is the first branch."""
        return ["", *list(self.order.lines)[1:]]

    def standing(self, item: _Stored, branch: str = "") -> Standing:
        """The position of the item's commit relative to the line of a branch; "" is the first
        branch."""
        return self.order.standing(item.commit, branch)

    def rank(self, item: _Stored, branch: str = "") -> _Precedence:
        """The precedence of an item for a branch."""
        place = self.order.get(item.commit, -1)
        measured = item.status == "ok"
        return _Precedence(
            not item.of_stack, self.standing(item, branch), place, measured, item.started
        )

    def on_line(self, place: Place) -> Sequence[Item]:
        """All items that count for the first branch, in ascending order of rank."""
        return self._parts(place)[0]

    def outside(self, place: Place) -> Sequence[Item]:
        """All items outside the line of the first branch, in ascending order of rank."""
        return self._parts(place)[1]

    def stored(self, place: Place) -> Sequence[Item]:
        """All items, those outside the line last."""
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
        """The last known item of a place; a retracted Record only if there is nothing else, None if
        nothing is stored."""
        newest_first = self.on_line(place)[::-1]
        known = (each for each in newest_first if each.status != "retracted")
        return next(known, next(iter(newest_first), None))

    def current(self, place: Place) -> Item | None:
        """The measured Record that represents a place; None if there is none."""
        return next(
            (each for each in reversed(self.on_line(place)) if each.status == "ok"), None
        )

    def lines(self, branch: str = "") -> Mapping[Place, list[Item]]:
        """For each place, the item that counts of each published commit, oldest first.

        For branches other than the first, only places measured at a commit of that branch itself;
        their lines include the commits shared with the first branch, for comparison.
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
    """The Record that represents each point on each machine, see `Index`. Sorted by machine and
    benchmark; within a benchmark, points keep the order of first appearance. Each version of a
    benchmark has its own points."""
    index = Index[tuple[str, str, str], Record](order)
    for record in records:
        if record.status == "ok":
            index.add((record.machine, record.benchmark, record.point), record)
    found = filter(None, map(index.current, index))
    return sorted(found, key=lambda record: (record.machine, record.benchmark))
