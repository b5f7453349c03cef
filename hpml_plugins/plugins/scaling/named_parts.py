"""DataParallel whose parts have names in a profile. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

from torch.nn import DataParallel
from torch.profiler import record_function


class NamedParts(DataParallel):  # type: ignore[misc]  # torch is untyped to mypy here
    """DataParallel, each of its four parts inside a `record_function` range of the part's name."""

    def scatter(self, *args: Any) -> Any:
        """The batch's chunks, one to each GPU."""
        with record_function("scatter"):
            return super().scatter(*args)

    def replicate(self, *args: Any) -> Any:
        """A copy of the model on each GPU, made anew in every step."""
        with record_function("replicate"):
            return super().replicate(*args)

    def parallel_apply(self, *args: Any) -> Any:
        """The forward passes, a thread each."""
        with record_function("parallel_apply"):
            return super().parallel_apply(*args)

    def gather(self, *args: Any) -> Any:
        """The outputs, brought to the first GPU."""
        with record_function("gather"):
            return super().gather(*args)
