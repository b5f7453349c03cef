"""What `hpml accept` said of cards with planted faults, counted: examples/planted_faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hpml_plugins.tools.accept.judging import Acceptance, CardVerdict

#: The runs that are kept, by the fault in their names.
RUNS = Path(__file__).parent.parent / "examples" / "planted_faults" / "runs"
FAULTS = {
    "plain": "nothing",
    "neighbour": "a neighbour copies 5 % of the time",
    "kernel": "a second kernel, 10 % of the time",
    "link": "the link to the host is shared",
    "bit": "a flipped bit, on one card",
}


def accept_runs(folder: Path = RUNS) -> Iterator[dict[str, str]]:
    """A row for each fault: how many judgements of a card there are, and what they are."""
    for fault, words in FAULTS.items():
        files = sorted(folder.glob(f"{fault}-*.json"))
        found = [msgspec.json.decode(path.read_bytes(), type=Acceptance) for path in files]
        cards = [card for each in found for card in _planted(fault, each)]
        if cards:
            verdicts = Counter(card.verdict for card in cards)
            explained = Counter(map(_explanation, cards))
            yield {
                "planted": words,
                "cards": str(len({card.card for card in cards})),
                "runs": str(len(files)),
                "fail": str(verdicts["fail"]),
                "pass": str(verdicts["pass"]),
                "cannot say": str(verdicts["cannot say"]),
                "explained by": ", ".join(
                    f"{name} {count}" for name, count in explained.most_common() if name
                ),
                "failed for the host": str(sum(map(_fails_for_its_host, found))),
                "s": f"{max(each.seconds for each in found):.0f}",
            }


def _planted(fault: str, found: Acceptance) -> Iterator[CardVerdict]:
    """The cards with the fault. A bit is flipped on the first; another one counts if it fails."""
    for number, card in enumerate(found.cards):
        if fault != "bit" or number == 0 or card.verdict == "fail":
            yield card


def _fails_for_its_host(found: Acceptance) -> bool:
    return any(each.component == "host" and each.verdict == "fail" for each in found.node)


def _explanation(card: CardVerdict) -> str:
    """What explained a failure, with the component where it was another program."""
    if card.verdict != "fail":
        return ""
    component = card.why.partition(":")[0]
    return component if card.explained_by == "another program" else card.explained_by
