"""The file of bands: the values of cards of each type, and how far a sound card may deviate.

`export` makes it from Records; a node needs only the file, not SciPy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

import msgspec

from hpml_plugins.errors import UsageError
from hpml_plugins.model import Params, Record, point_key

#: The form of the file.
FORMAT: Literal[1] = 1
#: The bands that ship with this package.
SHIPPED = Path(__file__).with_name("bands.json")
#: Size limit of the file, B.
MOST_BYTES = 64 << 20

Component = Literal["memory", "tensor cores", "power", "clocks", "link", "host"]
Regime = Literal["", "boost"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Words = dict[Name, Name]


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expected value on another card of a type, as natural logarithms.

    centre: the mean over the cards.  deviation: such that 95 % of other cards lie within 1.96 of
    it, one round each.  limit: a card that is worse by more than this fails.
    """

    centre: float
    deviation: Annotated[float, msgspec.Meta(gt=0)]
    limit: Annotated[float, msgspec.Meta(gt=0)]

    def worse(self, value: float, direction: str) -> float:
        """How much worse a value is than the centre, as a logarithm; negative if it is better."""
        apart = math.log(value) - self.centre
        return apart if direction == "lower" else -apart

    def percentile(self, value: float, direction: str) -> float:
        """The share of cards that a value is better than, 0 to 100."""
        return 100 * (1 - NormalDist(0, self.deviation).cdf(self.worse(value, direction)))


class Band(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One value of one point.

    regime: "boost", or "" for the settled or only one.  physics: the class whose variance counts.
    seconds: the median time of a round.  cards: how many measured it.  without: by `card_digest` of
    each of these cards, the level of the others alone: no card is judged by itself.
    """

    benchmark: Name
    version: Name
    params: Params
    metric: Name
    regime: Regime = ""
    unit: str
    direction: Literal["lower", "higher"]
    component: Component
    physics: Name
    seconds: float
    cards: Annotated[int, msgspec.Meta(ge=1)]
    every: Expected
    without: dict[str, Expected] = {}

    @property
    def point(self) -> str:
        """The key of its point, as in `Record.point`."""
        return point_key(self.benchmark, self.version, self.params)

    def level(self, card: str) -> Expected:
        """What a card is judged by.  card: its UUID."""
        return self.without.get(card_digest(card), self.every)


class Population(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cards of one type with one software stack.

    hardware: as `hardware_of`.  digests: the majority result of each step of the benchmark `bits`.
    outliers: how many cards were left out because their values differ from all others.
    """

    hardware: Name
    stack: Words
    cards: int
    outliers: int = 0
    bands: tuple[Band, ...]
    digests: Words = {}


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the bands were made from.  records: how many.  newest: the day of the newest Record.
    sha256: over the identities of all of them.  error_rate: the highest probability that a sound
    card fails."""

    records: int
    newest: str
    sha256: str
    error_rate: float


class Bands(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file.  version: of hpml-plugins that wrote it.  sha256: over all the rest."""

    format: Literal[1] = FORMAT
    version: Name
    made_from: Provenance
    populations: tuple[Population, ...]
    sha256: str = ""

    @property
    def digest(self) -> str:
        """The expected `sha256`."""
        bare = msgspec.structs.replace(self, sha256="")
        return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()

    def of_hardware(self, hardware: str) -> Iterator[Population]:
        """The populations of a type, with any stack."""
        return (each for each in self.populations if each.hardware == hardware)


def card_digest(card: str) -> str:
    """A card's name in the file: the card can be recognised, but its UUID cannot be read.  card:
    its UUID, or several with commas between."""
    return hashlib.sha256(f"hpml-card {card}".encode()).hexdigest()[:16]


def stack_of_record(record: Record) -> Words:
    """The software that distinguishes populations: torch, CUDA and the driver's branch; without a
    GPU only torch."""
    node = record.node if record.gpus else {}
    found = {
        "torch": record.packages.get("torch", ""),
        "cuda": str(node.get("cuda") or ""),
        "driver": str(node.get("driver") or "").partition(".")[0],
    }
    return {name: text for name, text in found.items() if text}


def format_stack(stack: Words) -> str:
    """`torch 2.11.0, cuda 13.0, driver 580`."""
    return ", ".join(f"{name} {version}" for name, version in stack.items())


def read_bands(path: Path = SHIPPED) -> Bands:
    """The bands of a file. Raises UsageError if it is damaged or has another form."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(content, type=Bands)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        what = f"{path}: no file of bands ({error})"
        raise UsageError(f"{what}; hpml accept --export-bands FILE writes one") from None
    if found.sha256 != found.digest:
        raise UsageError(f"{path}: changed since it was written: its digest is another one")
    return found


def as_file(bands: Bands) -> bytes:
    """The contents of a file of bands, including its digest."""
    whole = msgspec.structs.replace(bands, sha256=bands.digest)
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=1) + b"\n"
