"""What a training step copies between host and device, and how long the host waits in it."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_steps import READY, NotRun, Record, device_of
from benchmarks.gpu_steps.speed import LR, MOMENTUM, PLANS, _loss
from benchmarks.timing import compare
from deliralike import backends, zoo
from deliralike.optim.rules import rule

STEPS = 4
MEGABYTES = {"gpu": 256, "cpu": 4}
_WAITS = ("Synchronize", "cudaMemcpy", "cuMemcpy", "cudaStreamQuery")


def traffic(kind: str) -> Iterator[Record]:
    """Take steps from a batch on the host, whose loss nobody reads, and list what CUDA was asked.

    At best a step copies its batch to the device, nothing back, and the host waits for nothing.
    """
    runs = []
    for name in ("torch", "jax", "chainer"):
        backend = backends.get(name)
        try:
            device = device_of(backend, kind)
            network = zoo.build(
                "resnet18", backend=backend, device=device, num_classes=10
            ).train()
            optimizer = backend.optimizer(
                rule("sgd", lr=LR, momentum=MOMENTUM), network
            )
            images, labels = PLANS[kind]["resnet50"].data()
            batch = images, labels % 10
            step = _step(optimizer, batch)
            for _ in range(3):
                result = step()
            backend.numpy(result)
            runs.append((name, backend, step, sum(each.nbytes for each in batch)))
        except NotRun as reason:
            yield {"backend": name, "not run": str(reason)}
        except Exception as error:  # noqa: BLE001 (the other backends are wanted)
            yield {"backend": name, "failed": f"{type(error).__name__}: {error}"[:1500]}
    yield READY
    for name, backend, step, size in runs:
        yield {"backend": name, "batch, bytes": size, **_traced(backend, step)}


def _step(optimizer: Any, batch: tuple) -> Callable[[], Any]:
    return lambda: optimizer.update(_loss, *batch)


def _traced(backend: Any, step: Callable[[], Any]) -> Record:
    """Return, for one step on average, copies by direction, waits in ms, and kernels."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        results = [step() for _ in range(STEPS)]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    del results
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    copies: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    kernels = busy = 0.0
    for event in events:
        name, category = event.get("name", ""), event.get("cat", "")
        if category == "gpu_memcpy":
            _add(copies, name, float(event.get("args", {}).get("bytes", 0)))
        elif category in ("cuda_runtime", "cuda_driver") and any(
            each in name for each in _WAITS
        ):
            _add(waits, name, event.get("dur", 0.0) / 1e3)
        elif category == "kernel":
            kernels += 1
            busy += event.get("dur", 0.0) / 1e3
    return {
        "copies a step": {
            name: [n / STEPS, total / STEPS] for name, (n, total) in copies.items()
        },
        "waits a step, ms": {
            name: [n / STEPS, ms / STEPS] for name, (n, ms) in waits.items()
        },
        "kernels a step": kernels / STEPS,
        "GPU busy a step, ms": round(busy / STEPS, 3),
    }


def _add(table: dict[str, list[float]], name: str, amount: float) -> None:
    count, total = table.get(name, [0, 0.0])
    table[name] = [count + 1, total + amount]


def pinned(kind: str) -> Iterator[Record]:
    """A batch from pinned memory to the device through us, against PyTorch's own copy."""
    backend = backends.get("torch")
    device = device_of(backend, kind)
    import torch

    batch = torch.ones(MEGABYTES[kind] * 2**18)  # of 4 bytes
    pinned = batch.pin_memory() if kind == "gpu" else batch
    wait = torch.cuda.synchronize if kind == "gpu" else nullcontext

    def ours() -> None:
        backend.array(pinned, device=device)
        wait()

    def theirs() -> None:
        pinned.to(device, non_blocking=True)
        wait()

    def pageable() -> None:
        backend.array(batch, device=device)
        wait()

    def own_pageable() -> None:
        batch.to(device)
        wait()

    yield READY
    name = f"{MEGABYTES[kind]} MB to the device"
    yield asdict(compare(f"{name}, pinned, PyTorch's copy", ours, theirs, pairs=10))
    yield asdict(
        compare(f"{name}, pageable, PyTorch's copy", pageable, own_pageable, pairs=10)
    )
