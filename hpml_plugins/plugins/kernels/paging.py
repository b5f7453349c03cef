"""Shared by the variants of attention: the size of a page of the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Tokens of a page of the cache, and of a block of FlexAttention's mask.
PAGE = 128
#: Queries, keys and values → result of attention.
Attend = Callable[[Any, Any, Any], Any]
