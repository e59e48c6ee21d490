"""What each hand-made kernel gains: a training step with it and with the plain form in its place.

Each network has a process of its own, with one thread. Both forms make steps in turn, in processor
time, so that the ratio also holds on a machine that does other things meanwhile. A factor of 1.5
says that the step takes half as long again without the kernel.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import product
from typing import Any
from unittest import mock

import jax.numpy as jnp
from jax import lax

from benchmarks.families import Member, square_distance
from benchmarks.timing import Ratio, in_fresh_process, processor_seconds
from deliralike import backends, zoo
from deliralike.nn.functional import Functions
from deliralike.nn.geometry import tap_slices
from deliralike.optim.rules import rule

MEMBERS = (
    Member("lenet", batch=32),
    Member("resnet8", (32, 32), batch=16),
    Member("resnet18", (32, 32), batch=8),
    Member("mobilenet_v2", (96, 96)),
    Member("shufflenet_v2_x1_0", (96, 96)),
    Member("resnext50_32x4d", (64, 64)),
    Member("densenet121", (64, 64)),
    Member("efficientnet_b0", (96, 96)),
    Member("diffusion_model_unet"),
    Member("unet", (64, 64)),
    Member("unet", (32, 32, 32), {"dims": 3}, 1),
    Member("deit_tiny_patch16_224", (128, 128), {"image_size": 128}),
    Member("convnext_tiny", (64, 64)),
    Member("lstm_classifier", (32,), {"vocab_size": 1000}),
    Member("gpt_mini", (64,)),
)
Switch = Callable[[], AbstractContextManager[Any]]
_STEPS = 9


def _replace(*changes: tuple[Any, str, Any]) -> Switch:
    """Return what puts other values in the place of attributes."""

    def switch() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for holder, name, value in changes:
            stack.enter_context(mock.patch.object(holder, name, value))
        return stack

    return switch


def jax_switches() -> Mapping[str, Switch]:
    """Return what puts the plain form in the place of each kernel of the JAX backend."""
    from deliralike.backends.jax import convolution

    by_xla = convolution._by_xla
    by_convolving = convolution._transposed_by_convolving
    return {
        "depthwise": _replace((convolution, "_depthwise", _shifted_products)),
        "depthwise, by XLA": _replace((convolution, "_depthwise", by_xla)),
        "groups": _replace((convolution, "_part_by_part", by_xla)),
        "few windows": _replace((convolution, "_by_product", by_xla)),
        "transposed": _replace((convolution, "_transposed_by_product", by_convolving)),
        "planes": _replace((convolution, "_in_planes", by_xla)),
    }


def _shifted_products(x: Any, weight: Any, settings: Any) -> Any:
    """Return a depthwise convolution as products that JAX differentiates itself."""
    kernel, rank = weight.shape[2:], x.ndim - 2
    counts = settings.counts(x.shape[2:], kernel)
    pads = [(0, 0, 0), (0, 0, 0), *((*pad, 0) for pad in settings.pads)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), pads)
    cuts = product(*map(tap_slices, kernel, counts, settings.stride, settings.dilation))
    elements = weight.reshape(weight.shape[0], -1, *(1,) * rank)
    total: Any = 0
    for number, cut in enumerate(cuts):
        total += padded[:, :, *cut] * elements[:, number]
    return total


def chainer_switches() -> Mapping[str, Switch]:
    """Return what puts the plain form in the place of each kernel of the Chainer backend."""
    backends.get("chainer")
    from deliralike.backends.chainer.functional import ChainerFunctions
    from deliralike.backends.chainer.kernels import depthwise, slices

    def composed(*names: str) -> Switch:
        return _replace(
            *((ChainerFunctions, name, getattr(Functions, name)) for name in names)
        )

    return {
        "convolution": _replace(
            (ChainerFunctions, "convolve", _chainers_convolution),
            (ChainerFunctions, "_convolve_with_bias", Functions._convolve_with_bias),
        ),
        "slices": _replace((slices, "suits", _never)),
        "depthwise": _replace((depthwise, "suits", _never)),
        "norms": composed(
            "batch_norm_train", "group_norm", "layer_norm", "_standardise"
        ),
        "silu": composed("silu"),
        "recurrence": composed("lstm", "gru"),
    }


def _never(*_: Any) -> bool:
    return False


def _chainers_convolution(self, x, weight, stride, pads, dilation, groups):
    import chainer.functions as F

    if any(before != after for before, after in pads):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        pads = ((0, 0),) * len(pads)
    padding = tuple(before for before, _ in pads)
    function = F.convolution_2d if len(pads) == 2 else F.convolution_nd
    settings = {"dilate": tuple(dilation), "groups": groups}
    return function(x, weight, None, tuple(stride), padding, **settings)


SWITCHES = {"jax": jax_switches, "chainer": chainer_switches}


def run() -> list[Ratio]:
    """Measure every member on both backends; see the module for how."""
    ratios = []
    for backend in SWITCHES:
        for index in range(len(MEMBERS)):
            found = in_fresh_process("benchmarks.kernels", backend, index)
            ratios += [Ratio(**each) for each in found]
    return ratios


def measure(backend: str, member: Member, kernels: Sequence[str]) -> list[Ratio]:
    """Return the factor of each kernel, or of some by name; the process has one thread."""
    inputs = member.inputs()
    ours = _step(backend, member, inputs)
    switches = {"itself": nullcontext, **SWITCHES[backend]()}
    ratios = []
    for name, switch in switches.items():
        if kernels and name not in kernels:
            continue
        # a compiled program keeps its form, so that the plain one needs a network of its own
        plain = ours if backend == "chainer" else _step(backend, member, inputs)
        axes = f", {len(member.size)} axes" if member.settings.get("dims") else ""
        label = f"{member.name}{axes} on {backend}, {name}"
        ratios.append(_compare(label, plain, ours, switch))
        print(f"{label:60} {ratios[-1].ratio:.2f}", flush=True)
    return ratios


def _compare(
    name: str, plain: Callable[[], Any], ours: Callable[[], Any], switch: Switch
) -> Ratio:
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(_STEPS):
        with switch():
            times["plain"].append(processor_seconds(plain))
        times["ours"].append(processor_seconds(ours))
    medians = {form: statistics.median(each[2:]) for form, each in times.items()}
    ratios = [a / b for a, b in zip(times["plain"][2:], times["ours"][2:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Ratio(name, medians["plain"], medians["ours"], middle, low, high)


def _step(name: str, member: Member, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    backend = backends.get(name)
    network = zoo.build(member.name, backend=backend, **member.settings).train()
    optimizer = backend.optimizer(rule("sgd", lr=0.001, momentum=0.9), network)
    return lambda: float(backend.numpy(optimizer.update(square_distance, *inputs)))


if __name__ == "__main__":
    found = measure(sys.argv[1], MEMBERS[int(sys.argv[2])], sys.argv[3:])
    print(json.dumps([vars(each) for each in found]))
