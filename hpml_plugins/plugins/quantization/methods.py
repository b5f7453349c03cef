"""Ways to quantize a network by a library, and what each left in floating point. Imports torch: on use only.

torchao (github.com/pytorch/ao) quantizes linear layers, and 1×1 convolutions that it turns into such; torch.ao's FX
mode and torchao's export mode (pt2e) quantize convolutions too, on CPUs alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench, HpmlError
from hpml_plugins.plugins.quantization.names import CPU_METHODS, CUDA_METHODS
from hpml_plugins.plugins.quantization.subjects import Subject

#: CUDA's int8 and fp8 products want both sides of a weight to be multiples of these.
MULTIPLE = {"int8": 8, "float8": 16}
#: Images for the ranges of a network that is only timed.
TIMED_CALIBRATION = 32
#: What newer torch or torchao may no longer have.
MODULES = {
    "fx_dynamic": ("torch.ao.quantization",),
    "fx_static": ("torch.ao.quantization.quantize_fx",),
    "pt2e_static": (
        "torchao.quantization.pt2e.quantize_pt2e",
        "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer",
    ),
}


@dataclass(frozen=True)
class Deployed:
    """A network ready to run.

    dtype: of its input.  left: layer → why it stayed in floating point.  layers: with weights, in all.  timed: the same
    for images of the side that is timed, where `network` takes those of the judged side alone.
    """

    network: Any
    dtype: Any
    layers: int
    left: dict[str, str] = field(default_factory=dict)
    timed: Any = None


def deploy(bench: Bench, subject: Subject, method: str) -> Deployed:
    """A copy of the network, quantized. Skips the point where the card or torch cannot, or nothing can be quantized."""
    names = CUDA_METHODS if bench.device == "cuda" else CPU_METHODS
    if method not in names:
        raise HpmlError(f"no method {method!r} on {bench.device}; use one of {', '.join(names)}")
    network = copy.deepcopy(subject.network)
    layers = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    if method in ("float32", "bfloat16"):
        dtype = getattr(torch, method)
        return Deployed(_laid_out(network.to(dtype), bench.device), dtype, len(layers))
    for needed in MODULES.get(method, ()):
        bench.import_module(needed)
    if method == "fx_static":
        return Deployed(_fx_static(network, subject), torch.float32, len(layers))
    if method == "pt2e_static":
        judged, timed = _pt2e_static(network, subject.calibration), None
        if subject.calibration.shape[1:] != subject.timed:
            few = subject.calibration[:: max(1, len(subject.calibration) // TIMED_CALIBRATION)]
            timed = _pt2e_static(network, nn.functional.interpolate(few, size=subject.timed[1:]))
        return Deployed(judged, torch.float32, len(layers), timed=timed)
    if method == "fx_dynamic":
        left = dict.fromkeys(_convolutions(network), "dynamic quantization has no convolutions")
        _something_is_left(bench, method, layers, left)
        return Deployed(_fx_dynamic(network), torch.float32, len(layers), left)
    dtype = torch.bfloat16 if bench.device == "cuda" else torch.float32
    network = _laid_out(network.to(dtype), bench.device)
    return _by_torchao(bench, network, subject, method, dtype, layers)


def _laid_out(network: Any, device: str) -> Any:
    return network.to(memory_format=torch.channels_last) if device == "cuda" else network


def _by_torchao(bench: Bench, network: Any, subject: Subject, method: str, dtype: Any, layers: list[str]) -> Deployed:
    from torchao.quantization.quant_api import quantize_, swap_conv2d_1x1_to_linear

    if method.startswith("float8"):
        capability = torch.cuda.get_device_capability()
        if capability < (8, 9):
            bench.skip(f"float8 needs compute capability 8.9, this card has {capability[0]}.{capability[1]}")
    swap_conv2d_1x1_to_linear(network, lambda module, *_: _is_pointwise(module))
    why = _unfit(network, bench.device, method)
    swapped = {name: name.removesuffix(".mod") for name, _ in network.named_modules()}
    left = {swapped[name]: reason for name, reason in why.items()}
    _something_is_left(bench, method, layers, left)
    configs = _configs(network, subject, method, dtype)
    for name, config in configs.items():
        if name not in why:
            quantize_(network, config, filter_fn=lambda module, path, name=name: path == name)
    return Deployed(network, dtype, len(layers), left)


def _is_pointwise(module: Any) -> bool:
    """A 1×1 convolution that is a linear layer over pixels: torchao's replacement knows no stride and no padding."""
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == module.stride == (1, 1)
        and module.padding == (0, 0)
        and module.groups == 1
    )


def _unfit(network: Any, device: str, method: str) -> dict[str, str]:
    """Layers that torchao would not quantize, or CUDA not multiply."""
    why = dict.fromkeys(_convolutions(network), "torchao quantizes linear layers")
    if device != "cuda" or method.endswith("weight_only"):
        return why
    multiple = MULTIPLE[method.partition("_")[0]]
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and (module.in_features % multiple or module.out_features % multiple):
            why[name] = f"{module.in_features} → {module.out_features} is not in multiples of {multiple}"
    return why


def _convolutions(network: Any) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]


def _something_is_left(bench: Bench, method: str, layers: list[str], left: dict[str, str]) -> None:
    if set(left) >= set(layers):
        spelled = "; ".join(f"{name}: {why}" for name, why in list(left.items())[-2:])
        bench.skip(f"{method} can quantize no layer of this network ({spelled})")


def _configs(network: Any, subject: Subject, method: str, dtype: Any) -> dict[str, Any]:
    """Linear layer → torchao's configuration. Its settings of torch.compile, which search for minutes, are left out."""
    from torchao.quantization import quant_api as ao
    from torchao.quantization.granularity import PerRow, PerTensor

    make: dict[str, Callable[[], Any]] = {
        "int8_weight_only": lambda: ao.Int8WeightOnlyConfig(set_inductor_config=False),
        "int8_dynamic": lambda: ao.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False),
        "float8_weight_only": lambda: ao.Float8WeightOnlyConfig(set_inductor_config=False),
        "float8_dynamic": lambda: ao.Float8DynamicActivationFloat8WeightConfig(
            granularity=PerTensor(), set_inductor_config=False
        ),
    }
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if method != "int8_static":
        return {name: make[method]() for name in linear}
    scales = _observed_scales(network, subject, linear, dtype)
    return {
        name: ao.Int8StaticActivationInt8WeightConfig(
            act_quant_scale=scale, granularity=[PerTensor(), PerRow()], set_inductor_config=False
        )
        for name, scale in scales.items()
    }


def _observed_scales(network: Any, subject: Subject, linear: list[str], dtype: Any) -> dict[str, Any]:
    """The scale of each linear layer's input by torchao's observer, with as many dimensions as that input has."""
    from torchao.quantization.granularity import PerTensor
    from torchao.quantization.observer import AffineQuantizedMinMaxObserver
    from torchao.quantization.quant_primitives import MappingType

    observers, dimensions, hooks = {}, {}, []
    for name in linear:
        observers[name] = AffineQuantizedMinMaxObserver(
            MappingType.SYMMETRIC,
            torch.int8,
            granularity=PerTensor(),
            eps=torch.finfo(torch.float32).eps,
            scale_dtype=torch.float32,
            zero_point_dtype=torch.int32,
        )

        def look(module: Any, given: Any, name: str = name) -> None:
            observers[name](given[0])
            dimensions[name] = given[0].dim()

        hooks.append(network.get_submodule(name).register_forward_pre_hook(look))
    with torch.no_grad():
        for part in subject.calibration.split(64):
            network(part.to(dtype))
    for hook in hooks:
        hook.remove()
    return {name: observers[name].calculate_qparams()[0].reshape([1] * dimensions[name]) for name in linear}


def _fx_static(network: Any, subject: Subject) -> Any:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    prepared = prepare_fx(network, get_default_qconfig_mapping("x86"), (subject.calibration[:1],))
    _run_through(prepared, subject.calibration)
    return convert_fx(prepared)


def _fx_dynamic(network: Any) -> Any:
    from torch.ao.quantization import quantize_dynamic

    return quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8)


def _pt2e_static(network: Any, images: Any) -> Any:
    """For batches of any size of images of this shape: export finds other code for other sides."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    # strict: the quantizer finds ResNet's blocks by the source of each node, which another export does not keep.
    exported = torch.export.export(network, (images[:4],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=True)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported.module(), quantizer)
    _run_through(prepared, images)
    return convert_pt2e(prepared)


def _run_through(prepared: Any, images: Any) -> None:
    with torch.no_grad():
        for part in images.split(64):
            prepared(part)
