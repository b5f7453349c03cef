"""The benchmark `lm_serving_engines`: the load of the plugin's own server, answered by vLLM or
SGLang where one of them is installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, HpmlError, Requires
from hpml_plugins.plugins.language_models.server import Request, arrivals
from hpml_plugins.plugins.language_models.serving import (
    SERVING,
    context_of,
    fits_slots,
    metrics_of,
)
from hpml_plugins.plugins.language_models.shapes import LLAMA, Shape, find_shape

if TYPE_CHECKING:
    from hpml_plugins import Node

#: Requests before the measured ones: the engine compiles and captures.
WARM_UP = 4
#: Nothing is looked up or sent; the configuration of the model is on this node.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
#: Of a prompt, given its tokens and how many are wanted: the number of tokens so far, as they come.
Answer = Callable[[Sequence[int], int], AsyncIterator[int]]


@dataclass(frozen=True)
class Setting:
    """What an engine is started with.  folder: with the model's config.json.  device: "cuda" or
    "cpu".  context: positions of a sequence.  slots: sequences at a time."""

    folder: str
    device: str
    context: int
    slots: int
    seed: int


def measure(
    bench: Bench,
    *,
    engine: str,
    model: str,
    arrival: float,
    prompt: int,
    output: int,
    slots: int,
    seconds: float,
) -> Mapping[str, Any]:
    """Answer the same requests as the plugin's own server, by another engine.

    The model has the same shape, in bfloat16, with dummy weights that the engine makes, so its
    tokens mean nothing and only their number is checked. Prompts share no prefix, and none is
    cached. A token counts as soon as the engine hands it over, several at once with the same time.
    """
    if engine not in ENGINES:
        raise HpmlError(f"no engine {engine!r}; use one of {', '.join(ENGINES)}")
    shape = find_shape(model, LLAMA)
    requests = arrivals(arrival, seconds, output, bench.seed)
    os.environ.update(OFFLINE)
    context = context_of(prompt, output)
    bench.progress(f"starting {engine}", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        config = json.dumps(config_of(shape, context))
        (Path(folder) / "config.json").write_text(config, encoding="utf-8")
        setting = Setting(folder, bench.device, context, slots, bench.seed)
        texts = random_texts(shape, len(requests) + WARM_UP, prompt, bench.seed)
        took, energy = asyncio.run(answered(bench, engine, setting, requests, texts))
    for request in requests:
        bench.check(len(request.times) == request.wanted, "a request got as much as it asked for")
    version = str(getattr(bench.import_module(engine), "__version__", "unknown"))
    bench.series("engine", {"name": [engine], "version": [version]})
    return metrics_of(requests, took, energy)


async def answered(
    bench: Bench,
    engine: str,
    setting: Setting,
    requests: Sequence[Request],
    texts: Sequence[Sequence[int]],
) -> tuple[float, float | None]:
    """Start the engine, warm it up, answer all requests: s and J that this took."""
    async with ENGINES[engine](setting) as answer:
        few = [Request(0.0, request.wanted) for request in requests[:WARM_UP]]
        await send(answer, few, texts[len(requests) :], lambda done: None)

        def progress(done: int) -> None:
            text = f"{done} of {len(requests)} requests"
            bench.progress(text, 0.3 + 0.7 * done / len(requests))

        with bench.meter() as meter:
            took = await send(answer, requests, texts, progress)
        return took, meter.energy


async def send(
    answer: Answer,
    requests: Sequence[Request],
    texts: Sequence[Sequence[int]],
    progress: Callable[[int], None],
) -> float:
    """Send each request at its time and note when its tokens come; s until the last one."""
    started = time.perf_counter()
    done = 0

    async def one(request: Request, text: Sequence[int]) -> None:
        nonlocal done
        await asyncio.sleep(max(0.0, request.arrival - (time.perf_counter() - started)))
        async for count in answer(text, request.wanted):
            now = time.perf_counter() - started
            request.times += [now] * (count - len(request.times))
        done += 1
        progress(done)

    pairs = zip(requests, texts, strict=False)
    await asyncio.gather(*(one(request, text) for request, text in pairs))
    return time.perf_counter() - started


def random_texts(shape: Shape, count: int, length: int, seed: int) -> list[list[int]]:
    """Prompts of random tokens."""
    generator = random.Random(seed)
    return [generator.choices(range(shape.vocabulary), k=length) for _ in range(count)]


def config_of(shape: Shape, context: int) -> dict[str, Any]:
    """The model as Hugging Face's `LlamaConfig` describes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "bfloat16",
    }


@asynccontextmanager
async def with_vllm(setting: Setting) -> AsyncIterator[Answer]:
    """vLLM's asynchronous engine, on the device that vLLM was built for. Source:
    https://docs.vllm.ai/en/latest/api/vllm/."""
    from vllm import AsyncEngineArgs, AsyncLLMEngine, SamplingParams

    engine = AsyncLLMEngine.from_engine_args(
        AsyncEngineArgs(
            model=setting.folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            dtype="bfloat16",
            max_model_len=setting.context,
            max_num_seqs=setting.slots,
            enable_prefix_caching=False,
            disable_log_stats=True,
            seed=setting.seed,
        )
    )
    names = iter(range(1 << 60))

    async def answer(text: Sequence[int], wanted: int) -> AsyncIterator[int]:
        params = SamplingParams(
            temperature=0.0, max_tokens=wanted, ignore_eos=True, detokenize=False
        )
        # with its type: prompts without one are deprecated in vLLM 0.33
        prompt = {"type": "token", "prompt_token_ids": list(text)}
        async for found in engine.generate(prompt, params, str(next(names))):
            yield len(found.outputs[0].token_ids)

    try:
        yield answer
    finally:
        engine.shutdown()


@asynccontextmanager
async def with_sglang(setting: Setting) -> AsyncIterator[Answer]:
    """SGLang's engine. Source: https://docs.sglang.io, Offline Engine API."""
    from sglang import Engine

    engine = Engine(
        model_path=setting.folder,
        device=setting.device,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        context_length=setting.context,
        max_running_requests=setting.slots,
        disable_radix_cache=True,
        random_seed=setting.seed,
        # else SGLang kills this process when one of its own fails, instead of raising an error
        custom_sigquit_handler=signal.SIG_IGN,
    )

    async def answer(text: Sequence[int], wanted: int) -> AsyncIterator[int]:
        params = {"temperature": 0.0, "max_new_tokens": wanted, "ignore_eos": True}
        stream = await engine.async_generate(
            input_ids=list(text), sampling_params=params, stream=True
        )
        async for found in stream:
            yield found["meta_info"]["completion_tokens"]

    try:
        yield answer
    finally:
        engine.shutdown()


#: Module → what starts its engine.
ENGINES: dict[str, Callable[[Setting], AbstractAsyncContextManager[Answer]]] = {
    "vllm": with_vllm,
    "sglang": with_sglang,
}


def is_installed(node: Node, point: Mapping[str, Any]) -> str:
    """Why the point's engine cannot be used; "" if it is installed."""
    engine = str(point["engine"])
    if engine not in ENGINES or importlib.util.find_spec(engine):
        return ""
    return f"{engine} is not installed"


def fits_engine(node: Node, point: Mapping[str, Any]) -> str:
    """Why weights and cache do not fit into a GPU of this node; "" if they do."""
    return fits_slots(node, {**point, "format": "bfloat16"})


SERVING_ENGINES = replace(
    SERVING,
    name="lm_serving_engines",
    measure=measure,
    grid={
        "engine": tuple(ENGINES),
        **{name: values for name, values in SERVING.grid.items() if name != "format"},
    },
    requires=Requires(gpus=1, modules=("torch",), also=(is_installed, fits_engine)),
    description=(
        "The requests of the plugin's own server, answered by vLLM or SGLang, where installed, with"
        " a model of the same shape, on one GPU."
    ),
    terms={
        **{name: text for name, text in SERVING.terms.items() if name != "format"},
        "engine": "the package that answers",
        "slots": "sequences that are answered at a time",
    },
)
