"""What each hand-made kernel gains: a training step with it and with the plain form in its place.

Each network has a process of its own, with one thread. Both forms make steps in turn, in processor
time, so that the ratio also holds on a machine that does other things meanwhile. A factor of 1.5
says that the step takes half as long again without the kernel.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any
from unittest import mock

import jax
from jax import lax

from benchmarks.families import ONE_THREAD, Member, _loss
from benchmarks.timing import Ratio
from deliralike import backends, zoo
from deliralike.nn.functional import Functions
from deliralike.optim.rules import rule

MEMBERS = (
    Member("lenet", batch=32),
    Member("resnet8", (32, 32), batch=16),
    Member("resnet18", (32, 32), batch=8),
    Member("mobilenet_v2", (96, 96)),
    Member("shufflenet_v2_x1_0", (96, 96)),
    Member("resnext50_32x4d", (64, 64)),
    Member("densenet121", (64, 64)),
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
    """Return what switches each kernel of the JAX backend off."""
    from deliralike.backends.jax import convolution
    from deliralike.backends.jax.compiled import program
    from deliralike.backends.jax.unstable import jaxpr_as_fun

    return {
        "channels last": _replace((program, "channels_last", jaxpr_as_fun)),
        "depthwise, by shifts": _replace(
            (convolution, "_depthwise", _shifted_products)
        ),
        "depthwise, by XLA": _replace((convolution, "_depthwise", convolution._by_xla)),
        "groups": _replace((convolution, "_part_by_part", convolution._by_xla)),
        "few windows": _replace((convolution, "_by_product", convolution._by_xla)),
        "transposed": _replace(
            (
                convolution,
                "_transposed_by_product",
                convolution._transposed_by_convolving,
            )
        ),
        "planes": _replace((convolution, "_in_planes", convolution._by_xla)),
    }


def _shifted_products(x: Any, weight: Any, settings: Any) -> Any:
    """Return a depthwise convolution as products that JAX differentiates itself."""
    import itertools

    from deliralike.backends.jax import convolution
    from deliralike.nn.geometry import tap_slices

    if set(settings.lhs_dilation) != {1}:
        x = convolution._spread(x, settings)
    counts = settings.counts(x.shape[2:], weight.shape[2:])
    x = jax.numpy.repeat(x, weight.shape[0] // x.shape[1], axis=1)
    pads = [(0, 0, 0)] * 2 + [(*pad, 0) for pad in settings.pads]
    x = lax.pad(x, jax.numpy.zeros((), x.dtype), pads)
    axes = map(tap_slices, weight.shape[2:], counts, settings.stride, settings.dilation)
    cuts = itertools.product(*axes)
    elements = weight.reshape(weight.shape[0], -1)
    ones = (1,) * (x.ndim - 2)
    total: Any = 0
    for number, cut in enumerate(cuts):
        total += x[:, :, *cut] * elements[:, number].reshape(-1, *ones)
    return total


def chainer_switches() -> Mapping[str, Switch]:
    """Return what switches each kernel of the Chainer backend off."""
    backends.get("chainer")
    from deliralike.backends.chainer.functional import ChainerFunctions
    from deliralike.backends.chainer.kernels import convolution

    def composed(*names: str) -> Switch:
        changes = [(ChainerFunctions, name, getattr(Functions, name)) for name in names]
        return _replace(*changes)

    plan = convolution._plan

    def only_grouped(g: Any, x: Any, weight: Any) -> Any:
        return plan(g, x, weight) if g.groups > 1 else None

    def two_gradients(x: Any, w: Any, y: Any, g: Any) -> Any:
        return (
            convolution._transpose(y, w, g),
            convolution._weight_gradient(x, y, g),
        )

    return {
        "shifts": _replace((convolution, "_plan", lambda *_: None)),
        "shifts, dense": _replace((convolution, "_plan", only_grouped)),
        "both gradients": _replace((convolution, "_both_gradients", two_gradients)),
        "convolution": _replace(
            (ChainerFunctions, "convolve", _chainers_convolution),
            (ChainerFunctions, "_convolve_with_bias", Functions._convolve_with_bias),
            (ChainerFunctions, "convolve_transposed", _chainers_transposed),
        ),
        "max windows": _replace((ChainerFunctions, "max_windows", _chainers_pooling)),
        "norms": composed("batch_norm_train", "group_norm", "layer_norm"),
        "activations": composed(
            "leaky_relu", "elu", "relu6", "hardsigmoid", "hardswish", "silu", "gelu"
        ),
        "linear": _replace(
            (ChainerFunctions, "linear", _chainers_linear),
            (ChainerFunctions, "_add_bias", Functions._add_bias),
        ),
        "attention": composed("attention"),
        "recurrence": composed("lstm", "rnn", "gru"),
        "cross entropy": composed("cross_entropy"),
    }


def _chainers_convolution(self, x, weight, stride, pads, dilation, groups):
    import chainer.functions as F

    if any(before != after for before, after in pads):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        pads = ((0, 0),) * len(pads)
    padding = [before for before, _ in pads]
    function = F.convolution_2d if len(pads) == 2 else F.convolution_nd
    return function(
        x, weight, None, tuple(stride), tuple(padding), dilate=dilation, groups=groups
    )


def _chainers_transposed(
    self, x, weight, stride, padding, output_padding, dilation, groups
):
    import chainer.functions as F

    from deliralike.nn.geometry import conv_transposed_sizes

    size = conv_transposed_sizes(
        x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding
    )
    is_plane = len(padding) == 2
    function = F.deconvolution_2d if is_plane else F.deconvolution_nd
    return function(
        x,
        weight,
        None,
        tuple(stride),
        tuple(padding),
        outsize=tuple(size),
        dilate=dilation,
        groups=groups,
    )


def _chainers_pooling(self, x, kernel, stride, pads, dilation):
    import chainer.functions as F
    import numpy as np

    x = self.pad_constant(x, ((0, 0), (0, 0), *pads), -np.inf)
    return F.max_pooling_nd(x, tuple(kernel), tuple(stride), 0, cover_all=False)


def _chainers_linear(self, x, weight, bias=None):
    import chainer.functions as F

    rows = F.reshape(x, (-1, x.shape[-1]))
    return F.reshape(F.linear(rows, weight, bias), (*x.shape[:-1], weight.shape[0]))


SWITCHES = {"jax": jax_switches, "chainer": chainer_switches}


def run() -> list[Ratio]:
    """Measure every member on both backends; see the module for how."""
    ratios = []
    for backend in SWITCHES:
        for index in range(len(MEMBERS)):
            ratios += _in_process(backend, index)
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
        label = f"{member.name}{len(member.size or ())} on {backend}, {name}"
        ratios.append(_compare(label, plain, ours, switch))
        print(f"{label:60} {ratios[-1].ratio:.2f}", flush=True)
    return ratios


def _compare(
    name: str, plain: Callable[[], Any], ours: Callable[[], Any], switch: Switch
) -> Ratio:
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(_STEPS):
        with switch():
            times["plain"].append(_seconds(plain))
        times["ours"].append(_seconds(ours))
    medians = {form: statistics.median(each[2:]) for form, each in times.items()}
    ratios = [a / b for a, b in zip(times["plain"][2:], times["ours"][2:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Ratio(name, medians["plain"], medians["ours"], middle, low, high)


def _step(name: str, member: Member, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    backend = backends.get(name)
    network = zoo.build(member.name, backend=backend, **member.settings).train()
    optimizer = backend.optimizer(rule("sgd", lr=0.001, momentum=0.9), network)
    return lambda: float(backend.numpy(optimizer.update(_loss, *inputs)))


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _in_process(backend: str, index: int) -> list[Ratio]:
    """Measure one member in a fresh process with one thread."""
    command = [sys.executable, "-m", "benchmarks.kernels", backend, str(index)]
    done = subprocess.run(
        command,
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Ratio(**each) for each in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    found = measure(sys.argv[1], MEMBERS[int(sys.argv[2])], sys.argv[3:])
    print(json.dumps([vars(each) for each in found]))
