"""Conventions of functions that move elements about: orders of axes, of channels, of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import instead


def concatenate(b: Bound) -> Iterator[tuple]:
    """The parts in another order, along another axis, interleaved."""
    arrays = b["arrays"]
    count, rank = len(arrays), len(arrays[0].shape)
    orders = permutations(range(count)) if count <= 5 else [tuple(reversed(range(count)))]
    for order in orders:
        if order != tuple(range(count)):
            yield (
                f"order of concatenation {list(order)}",
                lambda nn, b, order=order: nn.concatenate(
                    [b["arrays"][i] for i in order], dim=b["dim"]
                ),
            )
    for dim in [dim for dim in range(rank) if dim != b["dim"] % rank]:
        yield (
            f"concatenation along axis {dim} instead of {b['dim']}",
            lambda nn, b, dim=dim: nn.concatenate(b["arrays"], dim=dim),
        )
    sizes = {array.shape[b["dim"]] for array in arrays}
    if len(sizes) == 1:
        yield "parts interleaved instead of one after another", lambda nn, b: _interleaved(nn, b)
    for one in range(count):
        yield (
            f"part {one} is zero",
            lambda nn, b, one=one: nn.concatenate(
                [array * float(i != one) for i, array in enumerate(b["arrays"])], dim=b["dim"]
            ),
        )
        for other in [other for other in range(count) if other != one]:
            yield (
                f"part {other} in the place of part {one}",
                lambda nn, b, one=one, other=other: nn.concatenate(
                    [b["arrays"][other if i == one else i] for i in range(count)], dim=b["dim"]
                ),
            )
        yield (
            f"part {one} without a gradient",
            lambda nn, b, one=one: nn.concatenate(
                [
                    nn.stop_gradient(array) if i == one else array
                    for i, array in enumerate(b["arrays"])
                ],
                dim=b["dim"],
            ),
        )
        yield (
            f"part {one} times {{}}",
            lambda nn, b, value, one=one: nn.concatenate(
                [array * value if i == one else array for i, array in enumerate(b["arrays"])],
                dim=b["dim"],
            ),
            (0.5, 2.0),
        )


def _interleaved(nn: Any, b: Bound) -> Any:
    joined = nn.concatenate(b["arrays"], dim=b["dim"])
    order = np.arange(joined.shape[b["dim"]]).reshape(len(b["arrays"]), -1).T.ravel()
    return nn.select(joined, nn.constant(order, like=joined), b["dim"] % len(joined.shape))


def flatten(b: Bound) -> Iterator[tuple]:
    """The merged axes in another order; NHWC is the usual one."""
    rank = len(b["x"].shape)
    start, end = b["start_dim"] % rank, b["end_dim"] % rank
    merged = tuple(range(start, end + 1))
    first = (*merged[1:], merged[0])  # channels last
    for order in [first, *permutations(merged)] if len(merged) <= 5 else [first]:
        if order == merged:
            continue
        word = "NHWC order (channels last)" if order == first else f"axes in the order {order}"
        dims = (*range(start), *order, *range(end + 1, rank))
        yield (
            f"flattened in {word} instead of NCHW",
            lambda nn, b, dims=dims: nn.flatten(nn.permute(b["x"], dims), start, end),
        )
    for other in range(rank):
        yield (
            instead("start_dim", other, b["start_dim"]),
            lambda nn, b, other=other: nn.flatten(b["x"], other, end),
        )


def reshape(b: Bound) -> Iterator[tuple]:
    """The elements taken in another order of axes."""
    for order in permutations(range(len(b["x"].shape))):
        yield (
            f"axes permuted to {order} before reshaping",
            lambda nn, b, order=order: nn.reshape(nn.permute(b["x"], order), b["shape"]),
        )


def pixel_shuffle(b: Bound) -> Iterator[tuple]:
    """Channels to space in another order."""
    r = b["upscale_factor"]
    n, c, h, w = b["x"].shape

    def made(nn: Any, b: Bound, split: tuple[int, ...], order: tuple[int, ...]) -> Any:
        return nn.reshape(nn.permute(nn.reshape(b["x"], split), order), (n, -1, h * r, w * r))

    yield (
        "channels to space in DCR order (depth, column, row) instead of CRD",
        lambda nn, b: made(nn, b, (n, r, r, c // (r * r), h, w), (0, 3, 4, 1, 5, 2)),
    )
    yield (
        "channels to space with height and width exchanged",
        lambda nn, b: made(nn, b, (n, c // (r * r), r, r, h, w), (0, 1, 4, 3, 5, 2)),
    )
    yield (
        "DCR order with height and width exchanged",
        lambda nn, b: made(nn, b, (n, r, r, c // (r * r), h, w), (0, 3, 4, 2, 5, 1)),
    )
    yield (
        "reshaped without moving channels to space",
        lambda nn, b: nn.reshape(b["x"], (n, c // (r * r), h * r, w * r)),
    )
    yield (
        "nearest neighbours instead of channels to space",
        lambda nn, b: nn.interpolate(b["x"][:, : c // (r * r)], scale_factor=r),
    )


def permute(b: Bound) -> Iterator[tuple]:
    """Axes in another order."""
    usual = tuple(d % len(b["x"].shape) for d in b["dims"])
    for order in permutations(range(len(usual))):
        if order != usual:
            yield (
                f"axes permuted in the order {order} instead of {usual}",
                lambda nn, b, order=order: nn.permute(b["x"], order),
            )


def pad(b: Bound) -> Iterator[tuple]:
    """Other rules and other sides."""
    pairs = tuple((p, p) if isinstance(p, int) else tuple(p) for p in b["padding"])
    for mode in ("constant", "reflect", "replicate"):
        if mode != b["mode"]:
            yield (
                f"{mode} padding instead of {b['mode']}",
                lambda nn, b, mode=mode: nn.pad(b["x"], pairs, mode),
            )
    yield (
        "padding before and after exchanged",
        lambda nn, b: nn.pad(
            b["x"], tuple((after, before) for before, after in pairs), b["mode"], b["value"]
        ),
    )
    yield (
        "axes of the padding in reverse order",
        lambda nn, b: nn.pad(b["x"], pairs[::-1], b["mode"], b["value"]),
    )
    yield (
        "padded with {}",
        lambda nn, b, value: nn.pad(b["x"], pairs, "constant", value),
        (1.0, 0.0),
    )


def reduction(name: str, b: Bound) -> Iterator[tuple]:
    """Sums for means, and other axes."""
    rank = len(b["x"].shape)
    for other in ("mean", "sum"):
        if other != name and name != "max":
            yield (
                f"{other} instead of {name}",
                lambda nn, b, other=other: getattr(nn, other)(b["x"], b["dim"], b["keepdim"]),
            )
    for dim in range(rank):
        yield (
            instead("dim", dim, b["dim"]),
            lambda nn, b, dim=dim: getattr(nn, name)(b["x"], dim, b["keepdim"]),
        )
    dims = (b["dim"],) if isinstance(b["dim"], int) else tuple(b["dim"] or range(rank))
    yield f"maximum instead of {name}", partial(_largest, dims=dims)
    if name == "max":
        yield "mean instead of max", lambda nn, b: nn.mean(b["x"], b["dim"], b["keepdim"])


def _largest(nn: Any, b: Bound, dims: Sequence[int]) -> Any:
    x, rank = b["x"], len(b["x"].shape)
    for dim in sorted((dim % rank for dim in dims), reverse=True):
        x = nn.max(x, dim, b.get("keepdim", False))
    return x


def matmul(b: Bound) -> Iterator[tuple]:
    """Factors transposed or exchanged."""

    def turned(nn: Any, x: Any) -> Any:
        return nn.transpose(x, -1, -2)

    yield "first factor transposed", lambda nn, b: nn.matmul(turned(nn, b["x"]), b["y"])
    yield "second factor transposed", lambda nn, b: nn.matmul(b["x"], turned(nn, b["y"]))
    yield "both factors transposed", lambda nn, b: nn.matmul(turned(nn, b["x"]), turned(nn, b["y"]))
    yield "factors exchanged", lambda nn, b: nn.matmul(b["y"], b["x"])


def linear(b: Bound) -> Iterator[tuple]:
    """The weight transposed or reshaped the other way round."""
    out, width = b["weight"].shape
    if out == width:
        yield (
            "weight transposed",
            lambda nn, b: nn.linear(b["x"], nn.transpose(b["weight"], 0, 1), b["bias"]),
        )
    yield (
        "weight stored as (in, out) and read as (out, in)",
        lambda nn, b: nn.linear(
            b["x"], nn.reshape(nn.transpose(b["weight"], 0, 1), (out, width)), b["bias"]
        ),
    )
