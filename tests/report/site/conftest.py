"""Fixtures of the page tests; what they are made of is in `site_history`, `hostile_site` and
`browsing`."""

from browsing import browser  # noqa: F401
from hostile_site import hostile  # noqa: F401
from site_history import add_result, project, published  # noqa: F401
