"""The plugin `language_models`: other servers under the same load, by stand-ins for vLLM and SGLang
with the parts of their interfaces that are used."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from hpml_plugins import Benchmark, Node, Requires
from hpml_plugins.measure import SamplingPlan
from hpml_plugins.plugins.language_models import engines, server
from hpml_plugins.plugins.language_models.shapes import LLAMA
from hpml_plugins.testing import Context, measure_point

SHORT = SamplingPlan(budget=0.05, warm_up=0.05, fewest=3)
CHECKED = """
import asyncio, json, pathlib

__version__ = "0.0-stand-in"


def check_model(folder, context):
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
        self.names.add(request_id)
        for count in range(1, params.max_tokens + 1 - SHORT_BY):
            await asyncio.sleep(0.001)
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=list(range(count)))])

    def shutdown(self):
        assert len(self.names) > 4
"""
SGLANG = """
class Engine:
    def __init__(self, model_path, skip_tokenizer_init, load_format, dtype, context_length,
                 max_running_requests, disable_radix_cache, random_seed):
        check_model(model_path, context_length)

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


def small() -> Benchmark:
    """The benchmark with a tiny model, where no GPU is needed."""
    return replace(
        engines.SERVING_ENGINES,
        grid={
            "engine": ("vllm", "sglang"),
            "model": ("tiny",),
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
    median = {name: each.median for name, each in record.metrics.items()}
    assert 0 < median["first_token"] <= median["first_token_p99"]
    # tokens that come together have no time between them
    assert 0 <= median["output_token"] <= median["output_token_p99"]
    assert median["rate"] > 0
    assert dict(record.series["engine"].columns) == {
        "name": [engine],
        "version": ["0.0-stand-in"],
    }


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
    import asyncio
    from collections.abc import AsyncIterator, Sequence

    async def answer(text: Sequence[int], wanted: int) -> AsyncIterator[int]:
        for count in range(1, wanted + 1):
            yield count

    requests = [server.Request(0.0, 3), server.Request(0.2, 2)]
    done: list[int] = []
    took = asyncio.run(engines.send(answer, requests, [[1], [2]], done.append))
    assert [len(request.times) for request in requests] == [3, 2]
    assert requests[1].times[0] >= 0.2 and took >= 0.2
    assert done == [1, 2]
