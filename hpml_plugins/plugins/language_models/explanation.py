"""The benchmarks `lm_explained` and `lm_explained_cpu`: a step's time and that of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.language_models.decoding import fits
from hpml_plugins.plugins.language_models.shapes import GPT, LLAMA, find_shape

if TYPE_CHECKING:
    from hpml_plugins import Node
    from hpml_plugins.plugins.language_models.parts import Compile, Part

#: s of sampling the whole step, and of each part, all rounds together.
BUDGET, PART_BUDGET = 1.0, 0.5


@dataclass(frozen=True)
class Rung:
    """An explained step.  kind: "decode", "prefill" or "training".  length: tokens in the cache, of
    the prompt, or of a sequence."""

    kind: str
    model: str
    batch: int
    length: int

    @property
    def tokens(self) -> int:
        """New tokens of a step."""
        return self.batch if self.kind == "decode" else self.batch * self.length

    @property
    def small(self) -> bool:
        """Whether it runs on CPUs."""
        return self.model == "tiny"


RUNGS = {
    "decode_1": Rung("decode", "llama-3-8b", 1, 2048),
    "decode_64": Rung("decode", "llama-3-8b", 64, 2048),
    "prefill_2048": Rung("prefill", "llama-3-8b", 1, 2048),
    "prefill_8192": Rung("prefill", "llama-3-8b", 1, 8192),
    "training_16": Rung("training", "gpt2-124m", 16, 1024),
    "training_64": Rung("training", "gpt2-124m", 64, 1024),
    "decode_tiny": Rung("decode", "tiny", 4, 128),
    "prefill_tiny": Rung("prefill", "tiny", 1, 128),
    "training_tiny": Rung("training", "tiny", 4, 64),
}


@dataclass(frozen=True)
class Whole:
    """A rung's step and its parts."""

    step: Callable[[], Any]
    parts: Sequence[Part]


def measure(bench: Bench, *, rung: str) -> Mapping[str, Any]:
    """Time a step, and each of its parts by itself; the prediction is the sum of these.

    A part is all of its calls in a step, one after another, so the gaps between their launches are
    in its time: in one CUDA graph if the step is one. The compiler's fusion across parts is not
    included. The prediction's interval is the sum of the parts' intervals: as if all erred alike.
    """
    if rung not in RUNGS:
        raise HpmlError(f"no rung {rung!r}; use one of {', '.join(RUNGS)}")
    wanted = RUNGS[rung]
    bench.progress("filling and compiling", 0.0)
    build = with_training if wanted.kind == "training" else with_inference
    whole = build(bench, wanted)
    bench.progress("the whole step", 0.2)
    time = bench.time(whole.step, budget=BUDGET)
    times = {}
    for number, part in enumerate(whole.parts):
        bench.progress(part.name, 0.3 + 0.7 * number / len(whole.parts))
        step = timed(bench, part, graph=wanted.kind == "decode")
        times[part.name] = part.count * bench.time(step, budget=PART_BUDGET, name=part.name)
    predicted, low, high = predict(times)
    attach(bench, whole.parts, times)
    return {
        "time": time,
        "predicted": Samples.of([predicted], "s", low=low, high=high),
        "ratio": time / predicted,
        "token_time": time / wanted.tokens,
    }


def predict(times: Mapping[str, Samples]) -> tuple[float, float, float]:
    """The sums of the parts' values and of the ends of their intervals, s."""
    intervals = [each.value_interval() for each in times.values()]
    value = sum(each.value for each in times.values())
    return value, sum(low for low, _ in intervals), sum(high for _, high in intervals)


def timed(bench: Bench, part: Part, *, graph: bool) -> Callable[[], Any]:
    """The part's step, captured if the whole step is."""
    if bench.device == "cpu" or not graph:
        return part.step
    from hpml_plugins.plugins.language_models.parts import as_graph

    return as_graph(part)


def attach(bench: Bench, parts: Sequence[Part], times: Mapping[str, Samples]) -> None:
    """The series of the parts."""
    intervals = [times[part.name].value_interval() for part in parts]
    columns: dict[str, list[float | str]] = {
        "part": [part.name for part in parts],
        "time": [times[part.name].value for part in parts],
        "low": [low for low, _ in intervals],
        "high": [high for _, high in intervals],
    }
    bench.series("parts", columns, dict.fromkeys(("time", "low", "high"), "s"))


def with_inference(bench: Bench, rung: Rung) -> Whole:
    """A decode step or a prompt; the parts together must give the result of the whole."""
    from hpml_plugins.plugins.language_models import inference, llama, parts

    format = "float32" if rung.small else "bfloat16"
    shape = find_shape(rung.model, LLAMA)
    model = llama.Llama(shape, rung.length, format, bench.device, bench.seed)
    decode = inference.DecodeStep(model, rung.batch, bench.seed)
    decode.read_prompt()
    tokens, place = decode.last, decode.place
    if rung.kind == "prefill":
        tokens = decode.text()
        place = model.place(place.rows[:, 0], model.places[None])
    caches = decode.caches

    def step() -> Any:
        return model(tokens, caches, place)

    wanted = step()[0].clone()
    fix: Compile = parts.as_it_is
    if bench.device == "cuda":
        options = inference.compile_options(rung.tokens)
        model.compile_parts(options)
        fix = parts.compiler(options)
    whole = Whole(step, parts.of_inference(model, tokens, caches, place, fix))
    found = bench.result(step()[0])
    error = inference.relative_error(found, wanted)
    bench.check(error <= TOLERANCE, f"the compiled step differs by {error:.1e}")
    if bench.device == "cuda" and rung.kind == "decode":
        whole = replace(whole, step=inference.captured(step)[0])
    return whole


def with_training(bench: Bench, rung: Rung) -> Whole:
    """A training step, checked as `lm_training` is."""
    from hpml_plugins.plugins.language_models import gpt, parts
    from hpml_plugins.plugins.language_models.training import Job, skip_if_too_large, trained

    shape = find_shape(rung.model, GPT)
    with skip_if_too_large(bench, Job(shape, rung.batch, rung.length, False)):
        trainer = gpt.Trainer(gpt.made(shape, False, bench.device, bench.seed))
        fix: Compile = parts.as_it_is
        if bench.device == "cuda":
            trainer.compile_whole()
            fix = parts.compiler({})
        text = gpt.random_text(shape, rung.batch, rung.length, bench.device, bench.seed)
        step, _ = trained(bench, trainer, trainer.model, text)
        return Whole(step, parts.of_training(trainer, text, fix))


def fits_rung(node: Node, point: Mapping[str, Any]) -> str:
    """Why the rung's model does not fit into a GPU of this node; "" if it does."""
    rung = RUNGS.get(str(point["rung"]))
    if rung is None or rung.kind == "training" or rung.small:
        return ""
    size = {"model": rung.model, "batch": rung.batch, "context": rung.length}
    return fits(node, {**size, "format": "bfloat16"})


#: Largest relative difference of the compiled step's logits.
TOLERANCE = 5e-2
EXPLAINED = Benchmark(
    "lm_explained",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of a step"),
        Metric("predicted", "s", "lower", "sum of the times of its parts, each by itself"),
        Metric("ratio", "1", None, "time over predicted"),
        Metric("token_time", "s", "lower", "time over new tokens"),
    ),
    grid={"rung": tuple(name for name, rung in RUNGS.items() if not rung.small)},
    requires=Requires(gpus=1, gpu_memory=16e9, modules=("torch", "triton"), also=(fits_rung,)),
    timeout=600,
    rounds=1,
    description=(
        "The time of a decode step, a prompt and a training step, predicted from the times of their"
        " parts, on one GPU."
    ),
    terms={"rung": "what is explained, with its batch or its length"},
)
EXPLAINED_CPU = replace(
    EXPLAINED,
    name="lm_explained_cpu",
    grid={"rung": tuple(name for name, rung in RUNGS.items() if rung.small)},
    requires=Requires(modules=("torch",)),
    timeout=120,
    description="The same with tiny decoders on the CPU.",
)
