"""The steps of ``python -m benchmarks.gpu``, each a process of its own.

A step is a generator of records: dictionaries of plain values, one line of JSON each. A step that
measures times gives `READY` when all is built and compiled, and goes on when the machine is its
own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

READY = {"ready": True}

Record = dict[str, Any]
Step = Callable[[str], Iterator[Record]]  # of "gpu" or "cpu"


class NotRun(Exception):
    """Why a step cannot run on this machine."""


@dataclass(frozen=True)
class Entry:
    """A step in the table.

    Attributes:
        module, function: Where it stands, in this package.
        seconds: How long it may take; with `is_timed` until it is ready, and then again `timing`.
        arguments: What the function takes after the kind of device.
        environment: Variables of its process.
        is_timed: Whether it waits until nothing else runs.
        timing: Seconds from then on.
    """

    module: str
    function: str
    seconds: float
    arguments: tuple[Any, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    is_timed: bool = False
    timing: float = 45.0


def device_of(backend: Any, kind: str) -> str:
    """Return the backend's first device of a kind, ``"gpu"`` or ``"cpu"``.

    Raises:
        NotRun: It has none.
    """
    for name in backend.devices():
        is_host = name.startswith(("cpu", "@numpy"))
        if is_host == (kind == "cpu"):
            return name
    raise NotRun(
        f"{backend.name} has no {kind} here, only {', '.join(backend.devices())}"
    )


def host_of(backend: Any) -> str:
    """Return the backend's name of the host."""
    return device_of(backend, "cpu")


TF32 = (("CUPY_TF32", "1"),)

STEPS: dict[str, Entry] = {
    "found": Entry("environment", "found", 100),
    "equality, torch": Entry("equality", "on_device", 150, ("torch",)),
    "equality, jax": Entry("equality", "on_device", 210, ("jax",)),
    "equality, chainer": Entry("equality", "on_device", 210, ("chainer",)),
    "equality, chainer with TF32": Entry(
        "equality", "with_tf32", 210, ("chainer",), TF32
    ),
    "tests": Entry("equality", "tests", 210),
    "proof, torch and jax": Entry("proofs", "proved", 210, ("torch", "jax")),
    "proof, torch and chainer": Entry("proofs", "proved", 210, ("torch", "chainer")),
    "chainer on cupy, float32": Entry("cupy_functions", "functions", 210, ("float32",)),
    "chainer on cupy, float64": Entry("cupy_functions", "functions", 210, ("float64",)),
    "chainer on cupy, float16": Entry("cupy_functions", "functions", 210, ("float16",)),
    "steps, torch resnet50": Entry(
        "speed", "torch_steps", 230, ("resnet50",), is_timed=True
    ),
    "steps, torch vit_b_16": Entry(
        "speed", "torch_steps", 230, ("vit_b_16",), is_timed=True
    ),
    "steps, torch unet 3D": Entry(
        "speed", "torch_steps", 230, ("unet",), is_timed=True
    ),
    "steps, jax": Entry("speed", "jax_steps", 230, is_timed=True),
    "copies and waits": Entry("copies", "traffic", 210, is_timed=True),
    "replicas": Entry("replicas", "twice", 210, is_timed=True),
    "steps, chainer": Entry("speed", "chainer_steps", 210, is_timed=True),
    "ceilings": Entry("environment", "ceilings", 100, is_timed=True, timing=20),
    "transfers from pinned memory": Entry(
        "copies", "pinned", 100, is_timed=True, timing=20
    ),
}
