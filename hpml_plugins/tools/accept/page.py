"""The page to send to a vendor: one HTML file that loads nothing."""

from __future__ import annotations

import datetime

from hpml_plugins.model import format_point, quantity
from hpml_plugins.tools.accept.judging import Acceptance
from hpml_plugins.tools.templates import fill_template


def as_page(found: Acceptance) -> str:
    """The page."""
    day = datetime.datetime.fromtimestamp(found.started, datetime.UTC)
    return fill_template(
        "accept",
        "page.html.jinja",
        found=found,
        day=f"{day:%Y-%m-%d %H:%M} UTC",
        format_point=format_point,
        quantity=quantity,
    )
