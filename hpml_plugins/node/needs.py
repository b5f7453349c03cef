"""Check the requirements of a point against the node."""

from __future__ import annotations

import functools
import importlib.util
import shutil

from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.checking import ask_reason
from hpml_plugins.model.data_source import why_no_data
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.node import Node


def gpus_used(benchmark: Benchmark, params: Params, node: Node) -> int:
    """The number of GPUs that this point uses on that node, resolving the parameter that `Requires`
    names.

    None if the node has no GPU and the benchmark falls back to the CPU.
    """
    if benchmark.requires.cpu_fallback and not node.gpus:
        return 0
    need = benchmark.requires.gpus
    return int(params[need]) if isinstance(need, str) else need


def data_used(benchmark: Benchmark, params: Params) -> tuple[str, ...]:
    """The data sets of this point, resolving the parameter that `Requires` names."""
    need = benchmark.requires.data
    return (str(params[need]),) if isinstance(need, str) else need


def unmet(
    benchmark: Benchmark, params: Params, node: Node, *, ask: bool = True
) -> list[str]:
    """The reasons why this point cannot be measured here, with their fixes if there are any; empty
    if it can.

    ask: whether to run plugin code too, which may exit or hang: the plugin's own requirements and
    data sources.
    """
    requires = benchmark.requires
    reasons = []
    gpus = gpus_used(benchmark, params, node)
    if gpus > node.num_gpu:
        has = "no GPU" if not node.num_gpu else f"{node.num_gpu}"
        because = f" ({node.gpu_problem})" if node.gpu_problem else ""
        reasons.append(f"needs {counted(gpus, 'GPU')}, this node has {has}{because}")
    memory = requires.gpu_memory
    needed = float(params[memory]) if isinstance(memory, str) else float(memory)
    if gpus and node.gpus and (smallest := min(gpu.memory for gpu in node.gpus)) < needed:
        reasons.append(
            f"needs {needed / 2**30:.1f} GiB of GPU memory, the card has {smallest / 2**30:.1f}"
        )
    reasons += [
        f"needs module {name} (pip install {name})"
        for name in requires.modules
        if not is_importable(name)
    ]
    reasons += [
        f"needs program {tool} on the PATH"
        for tool in requires.tools
        if not shutil.which(tool)
    ]
    if ask:
        reasons += map(why_no_data, data_used(benchmark, params))
        for question in requires.also:
            name = getattr(question, "__name__", type(question).__name__)
            reasons.append(
                ask_reason(
                    functools.partial(question, node, dict(params)), f"requirement {name}"
                )
            )
    return [reason for reason in reasons if reason]


@functools.cache  # called for every point
def is_importable(module: str) -> bool:
    """Whether a module can be found, without importing it.

    For `numba.cuda` only `numba` is searched: finding a submodule would import its package.
    """
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
