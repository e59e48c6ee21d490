"""The files of the package that a step, a build and a comparison pass through, once all is warm.

``python -m benchmarks.walks > docs/explanation/walks.md`` writes the page.
"""

import ast
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import deliralike
from deliralike import DataParallel, backends, in_replicas, zoo
from deliralike.optim.rules import rule

PACKAGE = Path(deliralike.__file__).parent
HEAD = """# Walks through the files

What one warm operation enters, in the order of the first call, as Python's profiler sees it: each
file of the package with its first line. Threads of replicas and processes are not followed, and a
compiled step of JAX runs without the layers. PyTorch's layers and losses are its own; on Chainer
the forward pass goes through those of `nn`. `python -m benchmarks.walks` writes this page.
"""
DEVICES = {"torch": "cpu", "chainer": "@numpy", "jax": "cpu"}
Walk = Callable[[], object]


def walks() -> dict[str, Walk]:
    """Return each walk by its title."""
    found = {}
    for backend in DEVICES:
        found[f"A training step, {backend}"] = _step(backend, replicas=1)
    for backend in DEVICES:
        found[f"A replicated step, {backend}"] = _step(backend, replicas=2)
    found["`zoo.build` and a forward pass, JAX"] = _build
    found["`compare` of two equal perceptrons"] = _compare
    return found


def files(walk: Walk) -> list[str]:
    """Return the files of the package that an operation enters, in that order, at a second call."""
    walk()
    entered: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)):
            entered[str(Path(name).relative_to(PACKAGE))] = None

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        walk()
    finally:
        sys.setprofile(before)
    return list(entered)


def first_line(file: str) -> str:
    """Return the first line of a file's docstring."""
    text = (PACKAGE / file).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def _step(backend: str, replicas: int) -> Walk:
    network = zoo.build("mlp", backend=backend, in_features=6, out_features=3)
    loss: Any = _loss
    if replicas > 1:
        network = DataParallel(network, [DEVICES[backend]] * replicas)
        loss = in_replicas(_loss)
    optimizer = backends.get(backend).optimizer(rule("sgd", lr=0.1), network)
    batch = np.ones((4, 6), np.float32), np.array([0, 2, 1, 0])
    return lambda: optimizer.update(loss, *batch)


def _loss(network: Any, inputs: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(inputs), labels)


def _build() -> None:
    network = zoo.build("resnet18", backend="jax", num_classes=4)
    network.eval()(network.backend.array(np.ones((1, 3, 32, 32), np.float32)))


def _compare() -> None:
    sides = []
    for backend in ("torch", "jax"):
        sides.append(zoo.build("mlp", backend=backend, in_features=6, out_features=3))
    proof = deliralike.compare(*sides, (np.ones((4, 6)), np.array([0, 2, 1, 0])))
    assert proof.proved


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for title, walk in walks().items():
        entered = files(walk)
        rows = [(f"`{file}`", first_line(file)) for file in entered]
        parts += [
            f"## {title}: {len(entered)} files",
            _table(("file", "what it is"), rows),
        ]
    parts += [
        f"## The rooms, {date.today()}",
        _table(("room", "files", "lines"), rooms()),
    ]
    return "\n".join(parts)


def rooms() -> list[tuple[str, int, int]]:
    """Return the files and lines of each room of the package, the largest first."""
    found: dict[str, list[int]] = {}
    for file in PACKAGE.rglob("*.py"):
        first, *rest = file.relative_to(PACKAGE).parts
        room = f"`{first}`" if rest else "beside the rooms"
        found.setdefault(room, []).append(len(file.read_text("utf-8").splitlines()))
    sizes = [(room, len(lines), sum(lines)) for room, lines in found.items()]
    return sorted(sizes, key=lambda size: -size[2])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
