"""What goes wrong when pages are written."""

from __future__ import annotations

from hpml_plugins.errors import HpmlError


class SiteError(HpmlError):
    """The published folder would not work offline, or a part of it cannot be written."""
