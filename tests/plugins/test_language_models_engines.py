"""The plugin `language_models`: other servers under the same load: vLLM and SGLang where one is
installed, elsewhere stand-ins with the parts of their interfaces that are used."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import run_async

from hpml_plugins import Benchmark, Node, Requires
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.node import detect_node
from hpml_plugins.plugins.language_models import engines, server
from hpml_plugins.plugins.language_models.shapes import LLAMA, Shape
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
CHECKED = """
import asyncio, json, pathlib

__version__ = "0.0-stand-in"


def check_model(folder, context, device="cpu"):
    assert device == "cpu"
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    assert (config["hidden_size"], config["num_key_value_heads"]) == (64, 2)
    assert config["max_position_embeddings"] == context
"""
VLLM = """
from dataclasses import dataclass
from types import SimpleNamespace


@dataclass
class AsyncEngineArgs:
    model: str
    skip_tokenizer_init: bool
    load_format: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    enable_prefix_caching: bool
    disable_log_stats: bool
    seed: int


@dataclass
class SamplingParams:
    temperature: float
    max_tokens: int
    ignore_eos: bool
    detokenize: bool


class AsyncLLMEngine:
    @classmethod
    def from_engine_args(cls, args):
        check_model(args.model, args.max_model_len)
        made = cls()
        made.names = set()
        return made

    async def generate(self, prompt, params, request_id):
        assert request_id not in self.names and len(prompt["prompt_token_ids"]) == 16
        assert prompt["type"] == "token"
        self.names.add(request_id)
        for count in range(1, params.max_tokens + 1 - SHORT_BY):
            await asyncio.sleep(0.001)
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=list(range(count)))])

    def shutdown(self):
        assert len(self.names) > 4
"""
SGLANG = """
class Engine:
    def __init__(self, model_path, device, skip_tokenizer_init, load_format, dtype, context_length,
                 max_running_requests, disable_radix_cache, random_seed, custom_sigquit_handler):
        check_model(model_path, context_length, device)

    async def async_generate(self, input_ids, sampling_params, stream):
        assert stream and len(input_ids) == 16

        async def tokens():
            wanted = sampling_params["max_new_tokens"] - SHORT_BY
            for count in [*range(2, wanted, 2), wanted]:  # two at a time
                await asyncio.sleep(0.001)
                yield {"meta_info": {"completion_tokens": count}}

        return tokens()

    def shutdown(self):
        pass
"""


def small(model: str = "tiny") -> Benchmark:
    """The benchmark with a tiny model, where no GPU is needed."""
    return replace(
        engines.SERVING_ENGINES,
        grid={
            "engine": ("vllm", "sglang"),
            "model": (model,),
            "arrival": (20.0,),
            "prompt": (16,),
            "output": (8,),
            "slots": (4,),
            "seconds": (0.5,),
        },
        requires=Requires(modules=("torch",), also=(engines.is_installed,)),
    )


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("vllm", VLLM), ("sglang", SGLANG)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"{CHECKED}\nSHORT_BY = 0\n{text}")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_requests_are_answered_by(engine: str, stand_ins: Path, node: Node) -> None:
    (point,) = [each for each in small().points() if each["engine"] == engine]
    record = measure_point(small(), point, Context(node, plan=SHORT))
    assert (record.status, record.reason) == ("ok", "")
    median = {name: each.value for name, each in record.metrics.items()}
    assert 0 < median["first_token"] <= median["first_token_p99"]
    # tokens that come together have no time between them
    assert 0 <= median["output_token"] <= median["output_token_p99"]
    assert median["rate"] > 0
    assert dict(record.series["engine"].columns) == {
        "name": [engine],
        "version": ["0.0-stand-in"],
    }


#: vLLM's attention on CPUs has no heads of fewer numbers than 32.
HEADS_OF_32 = Shape(2, 128, 224, 4, 2, 256)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_requests_are_answered_by_the_installed(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = detect_node()
    if reason := why_not_started(engine, on_gpu=bool(node.gpus)):
        pytest.skip(reason)
    monkeypatch.setitem(LLAMA, "heads_of_32", HEADS_OF_32)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB, else nearly all memory
    benchmark = small("heads_of_32")
    (point,) = [each for each in benchmark.points() if each["engine"] == engine]
    record = measure_point(benchmark, point, Context(node, plan=SHORT))
    assert (record.status, record.reason) == ("ok", ""), record.output
    median = {name: each.value for name, each in record.metrics.items()}
    assert 0 < median["first_token"] <= median["first_token_p99"]
    assert 0 <= median["output_token"] <= median["output_token_p99"]
    assert median["rate"] > 0
    assert record.series["engine"].columns["version"] != ["unknown"]


def why_not_started(engine: str, *, on_gpu: bool) -> str:
    """Why the engine itself cannot be started on this machine; "" if it can."""
    if not importlib.util.find_spec(engine):
        return f"{engine} is not installed"
    if on_gpu:
        return ""
    if engine == "vllm":
        from vllm.platforms import current_platform

        return "" if current_platform.is_cpu() else "vllm is built for GPUs"
    return "sglang needs a GPU"


def a_setting(folder: Path) -> engines.Setting:
    return engines.Setting(str(folder), "cpu", context=64, slots=4, seed=1)


def test_the_installed_vllm_has_the_interface_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its classes of arguments and parameters are made, and calls compared with its signatures."""
    if not importlib.util.find_spec("vllm"):
        pytest.skip("vllm is not installed")
    import vllm

    called: list[Mapping[str, Any]] = []

    class Started:
        def generate(self, *given: Any) -> Any:
            bound = inspect.signature(vllm.AsyncLLMEngine.generate).bind(self, *given)
            called.append(bound.arguments)
            return vllm_outputs(vllm)

        def shutdown(self) -> None:
            inspect.signature(vllm.AsyncLLMEngine.shutdown).bind(self)

    def start(arguments: Any) -> Started:
        assert isinstance(arguments, vllm.AsyncEngineArgs)
        return Started()

    inspect.signature(vllm.AsyncLLMEngine.from_engine_args).bind(None)
    monkeypatch.setattr(vllm.AsyncLLMEngine, "from_engine_args", start)
    assert answered_by(engines.with_vllm(a_setting(tmp_path))) == [1, 2]
    (call,) = called
    assert isinstance(call["sampling_params"], vllm.SamplingParams)


async def vllm_outputs(vllm: Any) -> Any:
    """Two answers of one request, as vLLM's own class."""
    from vllm.outputs import CompletionOutput

    for count in (1, 2):
        tokens = CompletionOutput(0, "", list(range(count)), None, None)
        yield vllm.RequestOutput("0", None, [5], None, [tokens], count == 2)


def test_the_installed_sglang_has_the_interface_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments and calls are compared with its signatures."""
    if not importlib.util.find_spec("sglang"):
        pytest.skip("sglang is not installed")
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs

    signature = inspect.signature(Engine.async_generate)

    def start(self: Any, **given: Any) -> None:
        inspect.signature(ServerArgs).bind(**given)

    async def async_generate(self: Any, **given: Any) -> Any:
        bound = signature.bind(self, **given)
        SamplingParams(**bound.arguments["sampling_params"])

        async def outputs() -> Any:
            for count in (1, 2):
                yield {"meta_info": {"completion_tokens": count}}

        return outputs()

    monkeypatch.setattr(Engine, "__init__", start)
    monkeypatch.setattr(Engine, "async_generate", async_generate)
    monkeypatch.setattr(Engine, "shutdown", lambda self: None)
    assert answered_by(engines.with_sglang(a_setting(tmp_path))) == [1, 2]


def answered_by(started: AbstractAsyncContextManager[engines.Answer]) -> list[int]:
    """The numbers of tokens of one request."""

    async def ask() -> list[int]:
        async with started as answer:
            return [count async for count in answer([5], 2)]

    counts: list[int] = run_async(ask())
    return counts


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_stops_early_fails(engine: str, stand_ins: Path, node: Node) -> None:
    file = stand_ins / engine / "__init__.py"
    file.write_text(file.read_text().replace("SHORT_BY = 0", "SHORT_BY = 1"))
    (point,) = [each for each in small().points() if each["engine"] == engine]
    record = measure_point(small(), point, Context(node, plan=SHORT))
    assert record.reason == "check failed: a request got as much as it asked for"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_installed_is_named(
    engine: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert engines.is_installed(node, {"engine": engine}) == f"{engine} is not installed"


def test_the_load_is_that_of_the_plugins_own_server() -> None:
    from hpml_plugins.plugins.language_models.serving import SERVING

    assert engines.SERVING_ENGINES.metrics == SERVING.metrics
    grids = [dict(each.grid) for each in (engines.SERVING_ENGINES, SERVING)]
    assert {**grids[0], "format": 0, "engine": 0} == {**grids[1], "format": 0, "engine": 0}
    texts = engines.random_texts(LLAMA["tiny"], 3, 5, seed=1)
    assert texts == engines.random_texts(LLAMA["tiny"], 3, 5, seed=1)
    assert [len(text) for text in texts] == [5, 5, 5]


def test_a_card_that_is_too_small_for_an_engine_is_named(
    node: Node, gpu_node: Node
) -> None:
    (point, *_) = engines.SERVING_ENGINES.points()
    assert engines.fits_engine(node, point).startswith("needs ")
    assert engines.fits_engine(gpu_node, point) == ""


def test_requests_are_sent_at_their_times() -> None:
    async def answer(text: Sequence[int], wanted: int) -> AsyncIterator[int]:
        for count in range(1, wanted + 1):
            yield count

    requests = [server.Request(0.0, 3), server.Request(0.2, 2)]
    done: list[int] = []
    took = run_async(engines.send(answer, requests, [[1], [2]], done.append))
    assert [len(request.times) for request in requests] == [3, 2]
    assert requests[1].times[0] >= 0.2 and took >= 0.2
    assert done == [1, 2]
