"""Quantizing a network by a library. Imports torch: imported on use only.

torchao (github.com/pytorch/ao) quantizes linear layers, and 1×1 convolutions that it converts to
linear layers; torch.ao's FX mode and torchao's export mode (pt2e) also quantize convolutions, only
on CPUs.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench
from hpml_plugins.plugins.quantization.networks import Subject, memory_format

#: CUDA's int8 and fp8 products need both sides of a weight to be multiples of these.
MULTIPLE = {"int8": 8, "float8": 16}
#: Images for the ranges of a network that is only timed.
TIMED_CALIBRATION = 32
#: torchao's configurations.
CONFIGS = {
    "int8_weight_only": "Int8WeightOnlyConfig",
    "int8_dynamic": "Int8DynamicActivationInt8WeightConfig",
    "int8_static": "Int8StaticActivationInt8WeightConfig",
    "float8_weight_only": "Float8WeightOnlyConfig",
    "float8_dynamic": "Float8DynamicActivationFloat8WeightConfig",
}


def deploy(bench: Bench, subject: Subject, method: str) -> tuple[Any, Any, Any]:
    """The network after quantization, its counterpart for images of the timed size, and the dtype
    of their input.

    Skips the point if the card does not support it, or if nothing can be quantized. Raises
    ImportError for parts that torchao lacks.
    """
    network, images = copy.deepcopy(subject.network), subject.calibration
    if method == "fx_static":
        network = _fx_static(network, images)
        return network, network, torch.float32
    if method == "pt2e_static":
        judged = timed = _pt2e_static(network, images)
        if images.shape[1:] != subject.timed:
            few = images[:: max(1, len(images) // TIMED_CALIBRATION)]
            timed = _pt2e_static(network, nn.functional.interpolate(few, size=subject.timed[1:]))
        return judged, timed, torch.float32
    is_bfloat16 = method == "bfloat16" or (bench.device == "cuda" and method != "float32")
    dtype = torch.bfloat16 if is_bfloat16 else torch.float32
    network = network.to(dtype=dtype, memory_format=memory_format(bench.device))
    if method == "fx_dynamic":
        network = _fx_dynamic(bench, network)
    elif method not in ("float32", "bfloat16"):
        _by_torchao(bench, network, images.to(dtype), method)
    return network, network, dtype


def report_left_in_float(
    bench: Bench, method: str, layers: list[str], left: dict[str, str]
) -> None:
    """Attach the series `left_in_float` and a warning; skip the point if all layers with weights
    stay in floating point.

    left: layer → the reason.
    """
    spelled = [f"{name}: {why}" for name, why in left.items()]
    if set(left) >= set(layers):
        bench.skip(f"{method} can quantize no layer of this network ({'; '.join(spelled[-2:])})")
    if left:
        bench.series("left_in_float", {"layer": list(left), "why": list(left.values())})
        named = ", ".join(f"{name} ({why})" for name, why in list(left.items())[:4])
        named += f" and {len(left) - 4} more" if len(left) > 4 else ""
        bench.warn(f"{len(left)} of {len(layers)} layers are left in floating point: {named}")


def _names(network: Any, *kinds: type) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, kinds)]


def _by_torchao(bench: Bench, network: Any, images: Any, method: str) -> None:
    """Quantize in place, without torchao's settings for torch.compile, which search for minutes."""
    from torchao.quantization import quant_api
    from torchao.quantization.granularity import PerRow, PerTensor

    if method.startswith("float8") and (has := torch.cuda.get_device_capability()) < (8, 9):
        bench.skip(f"float8 needs compute capability 8.9, this card has {has[0]}.{has[1]}")
    layers = _names(network, nn.Conv2d, nn.Linear)
    quant_api.swap_conv2d_1x1_to_linear(network, lambda module, *_: _is_pointwise(module))
    unfit = _unfit(network, bench.device, method)
    report_left_in_float(
        bench, method, layers, {name.removesuffix(".mod"): why for name, why in unfit.items()}
    )
    linear = _names(network, nn.Linear)
    scales = _observed_scales(network, images, linear) if method == "int8_static" else {}
    for layer in linear:
        if layer not in unfit:
            options: dict[str, Any] = {"set_inductor_config": False}
            if method == "float8_dynamic":
                options |= {"granularity": PerTensor()}
            if method == "int8_static":
                options |= {
                    "granularity": [PerTensor(), PerRow()],
                    "act_quant_scale": scales[layer],
                }
            config = getattr(quant_api, CONFIGS[method])(**options)
            quant_api.quantize_(
                network, config, filter_fn=lambda module, path, layer=layer: path == layer
            )


def _is_pointwise(module: Any) -> bool:
    """A 1×1 convolution as a linear layer over pixels: torchao's replacement supports neither
    stride nor padding."""
    wanted = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "groups": 1}
    return isinstance(module, nn.Conv2d) and all(
        getattr(module, name) == value for name, value in wanted.items()
    )


def _unfit(network: Any, device: str, method: str) -> dict[str, str]:
    """Layers that torchao would not quantize, or CUDA could not multiply, with the reason."""
    why = dict.fromkeys(_names(network, nn.Conv2d), "torchao quantizes linear layers")
    if device != "cuda" or method.endswith("weight_only"):
        return why
    multiple = MULTIPLE[method.partition("_")[0]]
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear) and (
            module.in_features % multiple or module.out_features % multiple
        ):
            why[name] = (
                f"{module.in_features} → {module.out_features} is not in multiples of {multiple}"
            )
    return why


def _observed_scales(network: Any, images: Any, linear: list[str]) -> dict[str, Any]:
    """The scale of each linear layer's input by torchao's observer, with as many dimensions as that
    input has."""
    from torchao.quantization.granularity import PerTensor
    from torchao.quantization.observer import AffineQuantizedMinMaxObserver
    from torchao.quantization.quant_primitives import MappingType

    inputs: dict[str, list[Any]] = {name: [] for name in linear}
    hooks = [
        network.get_submodule(name).register_forward_pre_hook(
            lambda _, given, name=name: inputs[name].append(given[0])
        )
        for name in linear
    ]
    _run_through(network, images)
    for hook in hooks:
        hook.remove()
    scales = {}
    for name, seen in inputs.items():
        observer = AffineQuantizedMinMaxObserver(
            MappingType.SYMMETRIC,
            torch.int8,
            granularity=PerTensor(),
            eps=torch.finfo(torch.float32).eps,
            scale_dtype=torch.float32,
            zero_point_dtype=torch.int32,
        )
        observer(torch.cat(seen))
        scales[name] = observer.calculate_qparams()[0].reshape([1] * seen[0].dim())
    return scales


def _fx_dynamic(bench: Bench, network: Any) -> Any:
    from torch.ao.quantization import quantize_dynamic

    left = dict.fromkeys(_names(network, nn.Conv2d), "dynamic quantization has no convolutions")
    report_left_in_float(bench, "fx_dynamic", _names(network, nn.Conv2d, nn.Linear), left)
    return quantize_dynamic(network, {nn.Linear}, dtype=torch.qint8)


def _fx_static(network: Any, images: Any) -> Any:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    prepared = prepare_fx(network, get_default_qconfig_mapping("x86"), (images[:1],))
    _run_through(prepared, images)
    return convert_fx(prepared)


def _pt2e_static(network: Any, images: Any) -> Any:
    """Exported for batches of any size of images of this shape: export gives other code for other
    image sizes."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    # strict: the quantizer finds ResNet's blocks by the source of each node, which other export
    # modes do not keep.
    exported = torch.export.export(
        network, (images[:4],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=True
    )
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported.module(), quantizer)
    _run_through(prepared, images)
    return convert_pt2e(prepared)


def _run_through(network: Any, images: Any) -> None:
    with torch.no_grad():
        for part in images.split(64):
            network(part)
