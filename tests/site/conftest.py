"""Fixtures of the page tests; what they are made of is in `site_history`."""

from site_history import add_result, project, published  # noqa: F401
