"""Figures published by others, each with its document."""

from __future__ import annotations

import functools

import msgspec

from hpml_plugins.errors import DefinitionError
from hpml_plugins.published import read_data


class PublishedFigure(msgspec.Struct, frozen=True):
    """One published number.

    about: the topic ("roofline").  what: in words.  subject: the measured object, such as {"model":
    "resnet18", "gpus": 1}. quantity: which of the document's numbers ("intensity").  value: in
    `unit`, SI base units.  document: its key in the data file.  source: the document in words.
    note: remarks for readers, such as what cannot be right about it.
    """

    about: str
    what: str
    subject: dict[str, str | int]
    quantity: str
    value: float
    unit: str
    document: str
    source: str
    note: str = ""


def published_figures(
    about: str | None = None, quantity: str | None = None, **subject: str | int
) -> list[PublishedFigure]:
    """The published figures, in the order of `hpml_plugins/data/published.yaml`.

    about, quantity, subject: only those of this topic, quantity or subject.

    `published_figures("roofline", "intensity", model="resnet18")` gives one figure per GPU. The
    quantities of one subject follow one another. The result is empty for a topic that the file does
    not have.
    """
    return [
        figure
        for figure in _read()
        if about in (None, figure.about)
        and quantity in (None, figure.quantity)
        and all(figure.subject.get(key) == value for key, value in subject.items())
    ]


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    about: str
    what: str
    subject: dict[str, str | int]
    values: dict[str, tuple[float, str]]
    document: str
    note: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    documents: dict[str, str]
    figures: list[_Group]
    reported: list[object]  # which hpml_plugins.published reads


@functools.cache
def _read() -> tuple[PublishedFigure, ...]:
    read = read_data("published.yaml", _File)
    for group in read.figures:
        if group.document not in read.documents:
            raise DefinitionError(
                f"{group.what!r} names document {group.document!r}, which `documents` lacks",
                "published.yaml",
            )
    return tuple(
        PublishedFigure(
            group.about,
            group.what,
            group.subject,
            quantity,
            value,
            unit,
            group.document,
            read.documents[group.document],
            group.note,
        )
        for group in read.figures
        for quantity, (value, unit) in group.values.items()
    )
