"""How time and memory grow with a network of 10 to 2,000 layers and a nest of 10 to 10,000 leaves.

Every size is measured in a process of its own with one thread, in processor time. What is reported
is the slope of a line through the logarithms of sizes and times: 1 is linear, 2 quadratic. JAX's
first step, of which XLA's compiler is the most, stands beside the same chain written by hand.
``python -m benchmarks.growth draw`` writes the figures and their picture into ``docs/explanation``.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Ratio
from deliralike import Network, backends, compare, zoo
from deliralike.optim.rules import rule
from deliralike.parallel import gather, scatter

LAYERS = (10, 100, 500, 1000, 2000)
COMPARED = {"torch,chainer": LAYERS, "torch,jax": (10, 50, 100, 200)}
LEAVES = (10, 100, 1000, 10_000)
LINEAR = 1.1  # the largest slope that is called linear
FROM = 100  # layers or leaves from which the slope is taken: below it, what is constant counts
FROM_FOR_BYTES = 500  # allocators take memory by the megabyte
BY_HAND = "JAX by hand"
WIDTH, SAMPLES = 8, 4
REPEATS = 3
FOLDER = Path(__file__).parents[1] / "docs" / "explanation"

Amounts = dict[str, tuple[float, float]]  # what: processor seconds, bytes
Measured = dict[str, dict[int, Amounts]]  # contestant: size: amounts


class Chain(Network):
    """Residual layers, one after the other."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        nn = self.nn
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(depth)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + self.nn.relu(layer(x)) / len(self.layers)
        return x


def run() -> list[Ratio]:
    """One slope for each thing that is done, and each backend."""
    return slopes(measured())


def measured() -> Measured:
    """Return what every size costs, measured now."""
    found: Measured = {}
    for contestant, sizes in _plan():
        found[contestant] = {}
        for size in sizes:
            command = [sys.executable, "-m", "benchmarks.growth", contestant, str(size)]
            environment = os.environ | {
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            done = subprocess.run(
                command, check=True, text=True, stdout=subprocess.PIPE, env=environment
            )
            found[contestant][size] = json.loads(done.stdout.splitlines()[-1])
    return found


def slopes(found: Measured) -> list[Ratio]:
    """Return slopes as ratios: of seconds and of bytes, with those between neighbours around them.

    `ours` is the amount at the largest size, `theirs` that at the smallest that counts.
    """
    ratios = []
    for contestant, by_size in found.items():
        for what in next(iter(by_size.values())):
            seconds = {size: amounts[what][0] for size, amounts in by_size.items()}
            is_ours = contestant != BY_HAND and what != "first step, jax"
            limit = LINEAR if is_ours else None
            ratios.append(_slope(f"{what}: time", seconds, FROM, limit, "s"))
            memory = {size: amounts[what][1] for size, amounts in by_size.items()}
            if all(memory[size] > 2**20 for size in memory if size >= FROM_FOR_BYTES):
                ratios.append(
                    _slope(f"{what}: memory", memory, FROM_FOR_BYTES, limit, "bytes")
                )
    return [ratio for ratio in ratios if ratio is not None]


def _slope(
    name: str, amounts: Mapping[int, float], first: int, limit: float | None, unit: str
) -> Ratio | None:
    sizes = [size for size in sorted(amounts) if size >= first]
    if len(sizes) < 2:
        return None
    points = [(math.log(size), math.log(amounts[size])) for size in sizes]
    fitted = statistics.linear_regression(*zip(*points, strict=True)).slope
    between = [(y - b) / (x - a) for (a, b), (x, y) in pairwise(points)]
    largest, smallest = amounts[sizes[-1]], amounts[sizes[0]]
    return Ratio(
        name, largest, smallest, fitted, min(between), max(between), limit, unit
    )


# What one process measures
# -----------------------------------------------------------------------------


def _plan() -> Iterable[tuple[str, Sequence[int]]]:
    """Return contestants with sizes: backends, JAX by hand, pairs that are compared, nests."""
    for name in ("torch", "chainer", "jax"):
        yield name, LAYERS
    yield BY_HAND, LAYERS
    yield from COMPARED.items()
    for name in ("torch", "chainer", "jax"):
        yield f"nest on {name}", LEAVES


def measure(contestant: str, size: int) -> Amounts:
    """Return what one contestant does at one size."""
    if contestant == BY_HAND:
        return _by_hand(size)
    if contestant.startswith("nest on "):
        return _nest(contestant.removeprefix("nest on "), size)
    if "," in contestant:
        return _compared(contestant.split(","), size)
    return _network(contestant, size)


def _network(name: str, depth: int) -> Amounts:
    backend = backends.get(name)
    make = Chain.on(name)
    rng = np.random.default_rng(0)
    batch = (
        rng.standard_normal((SAMPLES, WIDTH), np.float32),
        rng.integers(0, WIDTH, SAMPLES),
    )
    _train(backend, make(2), batch)  # what the first of anything costs is not growth
    zoo.outline(Chain, (WIDTH,), depth=2)
    amounts = {
        f"outline, {name}": amount(lambda: zoo.outline(Chain, (WIDTH,), depth=depth))
    }
    amounts[f"build, {name}"] = amount(lambda: make(depth))
    network = make(depth)
    state = network.neutral_state()
    amounts[f"load, {name}"] = amount(lambda: network.load_neutral_state(state))
    optimizer = backend.optimizer(rule("sgd", lr=0.01), network)
    first = lambda: optimizer.update(_loss, *batch)  # noqa: E731
    amounts[f"first step, {name}"] = amount(first, repeats=1)
    amounts[f"step, {name}"] = amount(
        lambda: float(backend.numpy(optimizer.update(_loss, *batch)))
    )
    return amounts


def _train(backend: Any, network: Any, batch: tuple) -> None:
    backend.optimizer(rule("sgd", lr=0.01), network).update(_loss, *batch)


def _loss(network: Any, x: Any, y: Any) -> Any:
    return network.nn.cross_entropy(network(x), y)


def _by_hand(depth: int) -> Amounts:
    """The same chain in plain JAX: what XLA takes to compile its training step."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    x, y = (
        rng.standard_normal((SAMPLES, WIDTH), np.float32),
        rng.integers(0, WIDTH, SAMPLES),
    )
    layers = []
    for _ in range(depth):
        layers.append(
            (rng.standard_normal((WIDTH, WIDTH), np.float32), np.zeros(WIDTH, "f4"))
        )

    def loss(layers: Any, x: Any, y: Any) -> Any:
        for weight, bias in layers:
            x = x + jax.nn.relu(x @ weight.T + bias) / depth
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1).mean()

    @jax.jit
    def step(layers: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(layers, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, layers, gradients), value

    first = amount(lambda: jax.block_until_ready(step(layers, x, y)), repeats=1)
    return {
        f"first step, {BY_HAND}": first,
        f"step, {BY_HAND}": amount(lambda: jax.block_until_ready(step(layers, x, y))),
    }


def _compared(names: Sequence[str], depth: int) -> Amounts:
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((6, WIDTH), np.float32), rng.integers(0, WIDTH, 6)

    def once(depth: int) -> None:
        networks = [Chain.on(name)(depth) for name in names]
        if not compare(*networks, batch).proved:
            raise RuntimeError(f"{names} at {depth} layers: the proof failed")

    once(2)  # what the first comparison costs is not growth
    return {f"compare, {' and '.join(names)}": amount(lambda: once(depth), repeats=1)}


def _nest(name: str, leaves: int) -> Amounts:
    backend = backends.get(name)
    device = backend.devices()[0]
    groups = {}
    for group in range(leaves // 10):
        pairs = []
        for _ in range(5):
            pairs.append(
                {key: backend.array(np.ones((8, 3), np.float32)) for key in "xy"}
            )
        groups[f"group{group}"] = pairs

    def both() -> None:
        gather(scatter(groups, [device, device], backend=backend), backend=backend)

    both()
    return {f"scatter and gather, {name}": amount(both)}


def amount(act: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Return the fewest processor seconds of a few calls, and the bytes of the first one's peak."""
    seconds = []
    before = _resident("VmRSS")
    _forget_peak()
    for _ in range(repeats):
        start = time.process_time()
        act()
        seconds.append(time.process_time() - start)
        if len(seconds) == 1:
            peak = _resident("VmHWM") - before
    return min(seconds), peak


def _forget_peak() -> None:
    """Set the process's largest resident memory to that of now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _resident(entry: str) -> int:
    """Return a line of the process's status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {entry}: this benchmark runs on Linux")


# The picture
# -----------------------------------------------------------------------------


def draw(found: Measured, path: Path) -> None:
    """Draw seconds over sizes, one panel for each thing that is done, with a linear line."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    from matplotlib import pyplot

    panels = (
        "outline",
        "build",
        "load",
        "first step",
        "step",
        "compare",
        "scatter and gather",
    )
    figure, axes = pyplot.subplots(2, 4, figsize=(12, 6), layout="constrained")
    for axis, panel in zip(axes.flat, panels, strict=False):
        lines = _lines(found, panel)
        for label, points in lines.items():
            axis.loglog(
                *zip(*points, strict=True), marker="o", markersize=3, label=label
            )
        highest = max(
            (points for points in lines.values()), key=lambda points: points[-1][1]
        )
        last, seconds = highest[-1]
        sizes = [size for size, _ in highest if size >= FROM] or [last]
        axis.loglog(
            sizes, [3 * seconds * size / last for size in sizes], "k:", label="linear"
        )
        axis.set_title(panel)
        axis.set_xlabel("leaves" if panel.startswith("scatter") else "layers")
        axis.set_ylabel("processor time, s")
        axis.legend(fontsize="small")
    axes.flat[-1].axis("off")
    figure.savefig(path, metadata={"Date": None})


def _lines(found: Measured, panel: str) -> dict[str, list[tuple[int, float]]]:
    """Return the points of a panel's lines by their labels; outlines need no backend: one line."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for by_size in found.values():
        for size, amounts in by_size.items():
            for what, (seconds, _) in amounts.items():
                title, _, label = what.partition(", ")
                if title == panel and not (panel == "outline" and label != "torch"):
                    name = "no framework" if panel == "outline" else label
                    lines.setdefault(name, []).append((size, seconds))
    return lines


def main(words: list[str]) -> None:
    """Measure one contestant, or all of them for the docs."""
    if words != ["draw"]:
        contestant, size = words
        print(json.dumps(measure(contestant, int(size))))
        return
    found = measured()
    (FOLDER / "growth.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, FOLDER / "growth.svg")
    for ratio in slopes(found):
        print(
            f"{ratio.name}: {ratio.theirs:.3g} to {ratio.ours:.3g} {ratio.unit}, "
            f"slope {ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
