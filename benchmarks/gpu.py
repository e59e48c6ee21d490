"""What only a GPU can show: ``make bench-gpu``; ``python -m benchmarks.gpu --device cpu`` without.

Samples a second of training steps in bfloat16, compiled, against the best loop by hand; two
replicas on one device; Chainer on CuPy; transfers from pinned memory; the tests that need a GPU.
Where there is no GPU it says so, names what it did not run, and writes nothing. On the host it runs
the same code on small networks, which shows that it works and nothing about speed.
"""

import argparse
import importlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.by_hand.torch_step import torch_step
from benchmarks.timing import Ratio, compare
from deliralike import DataParallel, backends, zoo
from deliralike.optim.rules import rule

GOAL = 0.99  # of the samples a second by hand
OUT = Path("build") / "gpu"  # .md and .json
LR, MOMENTUM, CLASSES = 0.01, 0.9, 1000


class NotRun(Exception):
    """Why a part cannot run on this machine."""


@dataclass(frozen=True)
class Work:
    """A network, its batch, and the modules by hand.

    Attributes:
        jax, chainer: The modules in `benchmarks.by_hand`; None where there is no peer.
    """

    network: str
    size: int
    batch: int
    jax: str | None = None
    chainer: str | None = None

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return images and labels."""
        rng = np.random.default_rng(0)
        images = rng.standard_normal((self.batch, 3, self.size, self.size), np.float32)
        return images, rng.integers(0, CLASSES, self.batch)


@dataclass(frozen=True)
class Plan:
    """What is measured on a kind of device."""

    kind: str
    works: Sequence[Work]
    megabytes: int
    pairs: int
    compiles: bool  # whether PyTorch's networks are compiled


PLANS = {
    "gpu": Plan(
        "gpu",
        (
            Work("resnet50", 224, 128, jax="jax_resnet50", chainer="chainer_resnet50"),
            Work("vit_b_16", 224, 64, jax="jax_vit"),
        ),
        megabytes=256,
        pairs=30,
        compiles=True,
    ),
    "cpu": Plan(
        "cpu",
        (Work("resnet18", 32, 4, jax="jax_resnet", chainer="chainer_resnet"),),
        megabytes=4,
        pairs=4,
        compiles=False,
    ),
}


def device_of(backend: Any, plan: Plan) -> str:
    """Return the backend's first device of the kind.

    Raises:
        NotRun: It has none.
    """
    for name in backend.devices():
        is_host = name.startswith(("cpu", "@numpy"))
        if is_host == (plan.kind == "cpu"):
            return name
    raise NotRun(f"{backend.name} has no {plan.kind} here, only {', '.join(backend.devices())}")


# The parts
# -----------------------------------------------------------------------------


def torch_training(plan: Plan) -> list[Ratio]:
    """PyTorch against autocast, channels-last and torch.compile on torchvision's networks."""
    backend = backends.get("torch")
    device = device_of(backend, plan)
    import torch

    references = importlib.import_module("benchmarks.by_hand.references")
    ratios = []
    for work in plan.works:
        torch._dynamo.reset()
        images, labels = (torch.from_numpy(each).to(device) for each in work.data())
        theirs = references.make(work.network).to(device, memory_format=torch.channels_last)
        if plan.compiles:
            theirs.compile()
        shorter = _autocast(theirs.train(), images.device.type)
        optimizer = torch.optim.SGD(theirs.parameters(), LR, MOMENTUM)
        in_rows = images.to(memory_format=torch.channels_last)
        by_hand = torch_step(shorter, optimizer, in_rows, labels)
        ratios.append(_contest(plan, work, "torch", _ours(backend, device, plan, work), by_hand))
    return ratios


def _autocast(network: Any, device: str) -> Callable[[Any], Any]:
    import torch

    def called(images: Any) -> Any:
        with torch.autocast(device, torch.bfloat16):
            return network(images).float()

    return called


def jax_training(plan: Plan) -> list[Ratio]:
    """JAX against flax networks, channels-last, as one compiled program in bfloat16."""
    backend = backends.get("jax")
    device = device_of(backend, plan)
    import jax
    import jax.numpy as jnp

    kind, _, number = device.partition(":")
    place = jax.devices(kind)[int(number or 0)]
    ratios = []
    for work in plan.works:
        by_hand = importlib.import_module(f"benchmarks.by_hand.{work.jax}")
        theirs = by_hand.training_step(*work.data(), dtype=jnp.bfloat16, device=place)
        ratios.append(_contest(plan, work, "JAX", _ours(backend, device, plan, work), theirs))
    return ratios


def chainer_training(plan: Plan) -> list[Ratio]:
    """Chainer in float32, on CuPy where the device is a GPU, against its own network."""
    backend = backends.get("chainer")
    device = device_of(backend, plan)
    import chainer

    ratios = []
    for work in plan.works:
        if work.chainer is None:
            continue
        by_hand = importlib.import_module(f"benchmarks.by_hand.{work.chainer}")
        theirs = by_hand.training_step(*work.data(), device=chainer.get_device(device))
        ours = _ours(backend, device, plan, work, dtype=None)
        ratios.append(_contest(plan, work, "Chainer, float32", ours, theirs))
    return ratios


def two_replicas(plan: Plan) -> list[Ratio]:
    """Two replicas on one device against one network; only reported: nothing is gained there."""
    ratios = []
    for name in ("torch", "chainer", "jax"):
        backend = backends.get(name)
        try:
            device = device_of(backend, plan)
        except NotRun:
            continue
        work = plan.works[0]
        one = _ours(backend, device, replace(plan, compiles=False), work, dtype=None)
        two = _ours(backend, device, replace(plan, compiles=False), work, dtype=None, replicas=2)
        found = compare(f"{work.network}, {name}: two replicas, one", two, one, pairs=plan.pairs)
        ratios.append(found)
    if not ratios:
        raise NotRun(f"no backend has a {plan.kind} here")
    return ratios


def pinned_transfers(plan: Plan) -> list[Ratio]:
    """A batch from pinned memory to the device through us, against PyTorch's own copy."""
    backend = backends.get("torch")
    device = device_of(backend, plan)
    import torch

    batch = torch.ones(plan.megabytes * 2**18)  # of 4 bytes
    pinned = batch.pin_memory() if plan.kind == "gpu" else batch
    wait = torch.cuda.synchronize if plan.kind == "gpu" else nullcontext

    def ours() -> None:
        backend.array(pinned, device=device)
        wait()

    def theirs() -> None:
        pinned.to(device, non_blocking=True)
        wait()

    def pageable() -> None:
        backend.array(batch, device=device)
        wait()

    name = f"{plan.megabytes} MB to the device, pinned"
    return [
        compare(f"{name}, PyTorch's copy", ours, theirs, pairs=plan.pairs),
        compare(f"{name}, pageable", ours, pageable, pairs=plan.pairs),
    ]


def tests_of_devices(plan: Plan) -> list[Ratio]:
    """The tests that skip themselves where there is no GPU: they hold nothing to time.

    Raises:
        NotRun: There is no GPU.
        CalledProcessError: A test failed.
    """
    if plan.kind != "gpu":
        raise NotRun("they need a GPU")
    device_of(backends.get("torch"), plan)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"], check=True)
    return []


PARTS: dict[str, Callable[[Plan], list[Ratio]]] = {
    "training steps on PyTorch": torch_training,
    "training steps on JAX": jax_training,
    "training steps on Chainer": chainer_training,
    "two replicas on one device": two_replicas,
    "transfers from pinned memory": pinned_transfers,
    "tests that need a GPU": tests_of_devices,
}


def _ours(
    backend: Any,
    device: str,
    plan: Plan,
    work: Work,
    dtype: str | None = "bfloat16",
    replicas: int = 1,
) -> Callable[[], float]:
    """Return a training step of ours; the batch lies on the device."""
    network = zoo.build(work.network, backend=backend, device=device).train()
    if backend.name == "torch" and plan.compiles:
        network.compile()
    network = DataParallel(network, [device] * replicas)
    optimizer = backend.optimizer(rule("sgd", lr=LR, momentum=MOMENTUM), network)
    if dtype is not None:
        optimizer.compute_in(dtype)
    images, labels = (backend.array(each, device=device) for each in work.data())
    return lambda: float(backend.numpy(optimizer.update(_loss, images, labels)))


def _loss(network: Any, images: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(images), labels)


def _contest(
    plan: Plan, work: Work, name: str, ours: Callable[[], object], theirs: Callable[[], object]
) -> Ratio:
    """Return the time of a step by that of one by hand; on the host there is no limit."""
    limit = 1 / GOAL if plan.kind == "gpu" else None
    title = f"{work.network}, {name}, batch {work.batch}"
    return compare(title, ours, theirs, pairs=plan.pairs, limit=limit)


# The table
# -----------------------------------------------------------------------------


def measured(plan: Plan, parts: Sequence[str]) -> tuple[dict[str, list[Ratio]], dict[str, str]]:
    """Return the ratios of each part that ran, and why the others did not."""
    found, left_out = {}, {}
    for part in parts:
        try:
            found[part] = PARTS[part](plan)
        except NotRun as reason:
            left_out[part] = str(reason)
    return found, left_out


def table(found: dict[str, list[Ratio]], left_out: dict[str, str], plan: Plan) -> str:
    """Return the table in Markdown; a speed is the inverse of a ratio of times."""
    lines = [
        f"# Measured on {plan.kind}",
        "",
        "| what | ours, ms | theirs, ms | our speed by theirs | goal |",
        "|---|---|---|---|---|",
    ]
    for ratios in found.values():
        for ratio in ratios:
            goal = "" if ratio.limit is None else f"{1 / ratio.limit:.2f}"
            lines.append(
                f"| {ratio.name} | {ratio.ours * 1e3:.2f} | {ratio.theirs * 1e3:.2f} | "
                f"{1 / ratio.ratio:.3f} ({1 / ratio.high:.3f} to {1 / ratio.low:.3f}) | {goal} |"
            )
    lines += ["", *_not_run(left_out)]
    return "\n".join(lines).rstrip() + "\n"


def _not_run(left_out: dict[str, str]) -> list[str]:
    return [f"not run: {part}: {reason}" for part, reason in left_out.items()]


def main(words: Sequence[str]) -> int:
    """Measure, print the table and write it; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=PLANS, default="gpu")
    parser.add_argument("--out", type=Path, default=OUT, help="the table, without .md and .json")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    chosen = parser.parse_args(words)
    plan = PLANS[chosen.device]
    found, left_out = measured(plan, chosen.part or list(PARTS))
    if not found:
        print(f"no {plan.kind} here: nothing was measured, nothing written")
        print(*_not_run(left_out), sep="\n")
        return 0
    text = table(found, left_out, plan)
    print(text, end="")
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.with_suffix(".md").write_text(text)
    ratios = {part: [asdict(ratio) for ratio in each] for part, each in found.items()}
    content = {
        "device": plan.kind,
        "python": platform.python_version(),
        "ratios": ratios,
        "not run": left_out,
    }
    chosen.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    every = [ratio for each in found.values() for ratio in each]
    return 0 if all(ratio.good for ratio in every) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
