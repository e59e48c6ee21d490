"""A convolution on JAX's CPU, forwards and both gradients, against JAX's own convolution."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import backends

# name: input, kernel, stride, padding, groups; the layers of well-known networks
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int, int]] = {
    "dense 3x3 (ResNet)": ((4, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1),
    "depthwise 3x3 (MobileNet)": ((4, 144, 28, 28), (144, 1, 3, 3), 1, 1, 144),
    "depthwise 3x3, stride 2": ((4, 144, 28, 28), (144, 1, 3, 3), 2, 1, 144),
    "depthwise 7x7 (ConvNeXt)": ((4, 96, 28, 28), (96, 1, 7, 7), 1, 3, 96),
    "32 groups (ResNeXt)": ((4, 128, 28, 28), (128, 4, 3, 3), 1, 1, 32),
    "patches 16x16 (ViT)": ((1, 3, 64, 64), (192, 3, 16, 16), 16, 0, 1),
    "3x3x3, stride 2 (U-Net)": ((1, 16, 16, 16, 16), (32, 16, 3, 3, 3), 2, 1, 1),
}


def run() -> list[Ratio]:
    """Compare each case; the dense one is JAX's own."""
    return [_contest(name, *case) for name, case in CASES.items()]


def _contest(
    name: str,
    x_shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int,
    padding: int,
    groups: int,
) -> Ratio:
    axes = len(kernel) - 2
    strides, pads = (stride,) * axes, ((padding, padding),) * axes
    nn = backends.get("jax").nn

    def ours(x: Any, weight: Any) -> Any:
        return nn.convolve(x, weight, strides, pads, (1,) * axes, groups)

    def theirs(x: Any, weight: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, weight, strides, pads, feature_group_count=groups, precision="highest"
        )

    generator = np.random.default_rng(0)
    arrays = [
        generator.normal(size=shape).astype(np.float32) for shape in (x_shape, kernel)
    ]
    limit = 1.1 if groups == 1 and stride == 1 else 1.0
    name = f"convolution on JAX, {name}"
    return compare(
        name, _step(ours, arrays), _step(theirs, arrays), pairs=10, limit=limit
    )


def _step(
    function: Callable[..., Any], arrays: list[np.ndarray]
) -> Callable[[], object]:
    @jax.jit
    def step(x: Any, weight: Any) -> Any:
        y, pull = jax.vjp(function, x, weight)
        return pull(jax.numpy.cos(y))

    return lambda: jax.block_until_ready(step(*arrays))
