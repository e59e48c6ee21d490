"""What the machine has: the card, its two ceilings, the packages and each backend's devices."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu_steps import READY, NotRun, Record
from benchmarks.timing import seconds
from deliralike import backends

PACKAGES = (
    "torch", "torchvision", "triton", "jax", "jaxlib", "flax", "optax", "chainer", "numpy", "scipy",
    "optree", "xxhash", "typer", "rich", "safetensors", "pytest", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def found(kind: str) -> Iterator[Record]:
    """Say what is here."""
    yield {
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "packages": _all(),
    }
    for name in ("torch", "jax", "chainer"):
        try:
            backend = backends.get(name)
            yield {
                "backend": name,
                "version": backend.version(),
                "devices": backend.devices(),
                "precision": backend.precision(),
            }
        except Exception as error:  # noqa: BLE001 (the others are wanted all the same)
            yield {"backend": name, "failed": repr(error)}


def _all() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def ceilings(kind: str) -> Iterator[Record]:
    """Measure how fast the card copies and multiplies."""
    import torch

    if kind != "gpu" or not torch.cuda.is_available():
        raise NotRun("PyTorch sees no GPU")
    yield READY
    properties = torch.cuda.get_device_properties(0)
    yield {
        "card": properties.name,
        "GiB": round(properties.total_memory / 2**30, 1),
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version(),
    }
    x = torch.randn(2**28, device="cuda")  # 1 GiB
    y = torch.empty_like(x)
    copied = _median(lambda: y.copy_(x))
    a, b = (
        torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    product = _median(lambda: a @ b)
    yield {
        "TB/s copied, read and written": round(2 * x.nbytes / copied / 1e12, 2),
        "bfloat16 TFLOP/s": round(2 * 8192**3 / product / 1e12, 1),
    }


def _median(function: Any) -> float:
    import torch

    def waited() -> None:
        function()
        torch.cuda.synchronize()

    waited()
    return sorted(seconds(waited) for _ in range(9))[4]
