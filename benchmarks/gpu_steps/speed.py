"""Training steps against the best loop by hand: eager, compiled, with CUDA graphs, in bfloat16."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu_steps import READY, Record, device_of
from benchmarks.timing import compare
from deliralike import DataParallel, backends, zoo
from deliralike.optim.rules import rule

GOAL = 0.99  # of the samples a second by hand
LR, MOMENTUM = 0.01, 0.9
PAIRS = {"gpu": 12, "cpu": 2}


@dataclass(frozen=True)
class Work:
    """A network and its batch.

    Attributes:
        reference: The module by hand: torchvision's name, or None for our own module.
        jax, chainer: The modules in `benchmarks.by_hand`, where there are some.
    """

    network: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    classes: int = 1000
    reference: str | None = None
    jax: str | None = None
    chainer: str | None = None

    @property
    def title(self) -> str:
        return f"{self.network}, {' x '.join(map(str, self.shape))}"

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels."""
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal(self.shape, np.float32)
        is_dense = self.network == "unet"
        size = (self.shape[0], *self.shape[2:]) if is_dense else self.shape[:1]
        return inputs, rng.integers(0, self.classes, size)


_UNET = {"dims": 3, "features": (32, 32, 64, 128, 256, 32)}
_TINY_VIT = {"image_size": 32, "patch_size": 16, "num_layers": 2, "num_heads": 2} | {
    "hidden_dim": 32,
    "mlp_dim": 64,
}
PLANS: dict[str, dict[str, Work]] = {
    "gpu": {
        "resnet50": Work(
            "resnet50",
            {},
            (64, 3, 224, 224),
            reference="resnet50",
            jax="jax_resnet50",
            chainer="chainer_resnet50",
        ),
        "vit_b_16": Work(
            "vit_b_16", {}, (64, 3, 224, 224), reference="vit_b_16", jax="jax_vit"
        ),
        "unet": Work("unet", _UNET, (2, 1, 96, 96, 96), classes=2),
    },
    "cpu": {
        "resnet50": Work(
            "resnet18",
            {},
            (4, 3, 64, 64),
            reference="resnet18",
            jax="jax_resnet",
            chainer="chainer_resnet",
        ),
        "vit_b_16": Work("vit_b_16", _TINY_VIT, (2, 3, 32, 32), reference="vit_b_16"),
        "unet": Work(
            "unet",
            _UNET | {"features": (4, 4, 4, 8, 8, 4)},
            (1, 1, 32, 32, 32),
            classes=2,
        ),
    },
}


@dataclass(frozen=True)
class Mode:
    """How a step on PyTorch computes.

    Attributes:
        compile: Settings of ``torch.compile``, None for eager.
        by_channel: Whether our network has its memory as the zoo builds it. Otherwise both sides
            have channels last.
    """

    name: str
    dtype: str | None = "bfloat16"
    compile: Mapping[str, Any] | None = None
    by_channel: bool = field(default=False)


MODES = (
    Mode("eager, float32", dtype=None),
    Mode("eager"),
    Mode("eager, as the zoo builds it", by_channel=True),
    Mode("compiled", compile={"mode": "default"}),
    Mode("compiled, CUDA graphs", compile={"mode": "reduce-overhead"}),
)


def torch_steps(kind: str, key: str) -> Iterator[Record]:
    """PyTorch against autocast, channels last and ``torch.compile`` on torchvision's networks."""
    backend = backends.get("torch")
    device = device_of(backend, kind)
    work = PLANS[kind][key]
    # both sides use TF32 where they compute in float32
    import torch

    torch.set_float32_matmul_precision("high")
    contests = []
    for mode in (
        MODES if key == "resnet50" else [each for each in MODES if not each.by_channel]
    ):
        try:
            pair = (
                ours(backend, device, work, mode),
                _torch_by_hand(work, device, mode),
            )
            losses = [[step() for step in pair] for _ in range(4)][0]
            contests.append((mode, *pair))
            yield {"mode": mode.name, "first losses": losses}
        except Exception as error:  # noqa: BLE001 (the other modes are wanted)
            yield {
                "mode": mode.name,
                "failed": f"{type(error).__name__}: {error}"[:1500],
            }
    yield READY
    for mode, mine, theirs in contests:
        yield _contest(kind, f"{work.title}, {mode.name}", mine, theirs)
    if kind == "gpu":
        yield {"GiB at most": round(torch.cuda.max_memory_allocated() / 2**30, 1)}


def ours(
    backend: Any, device: str, work: Work, mode: Mode | None = None, replicas: int = 1
) -> Callable[[], float]:
    """Return a training step of ours; the batch lies on the device.

    Args:
        mode: On PyTorch; float32 without.
    """
    network = zoo.build(
        work.network, backend=backend, device=device, **work.settings
    ).train()
    images, labels = (backend.array(each, device=device) for each in work.data())
    if mode is not None and not mode.by_channel:
        network, images = _channels_last(network, images)
    if replicas > 1:
        network = DataParallel(network, [device] * replicas)
    optimizer = backend.optimizer(rule("sgd", lr=LR, momentum=MOMENTUM), network)
    if mode is not None and mode.dtype is not None:
        optimizer.compute_in(mode.dtype)
    if mode is not None and mode.compile is not None:
        optimizer.compile(**mode.compile)
    return lambda: float(backend.numpy(optimizer.update(_loss, images, labels)))


def _loss(network: Any, images: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(images), labels)


def _channels_last(network: Any, images: Any) -> tuple[Any, Any]:
    import torch

    layout = torch.channels_last if images.ndim == 4 else torch.channels_last_3d
    return network.to(memory_format=layout), images.to(memory_format=layout)


def _torch_by_hand(work: Work, device: str, mode: Mode) -> Callable[[], float]:
    import torch

    network = _torch_reference(work).to(device).train()
    images, labels = (torch.from_numpy(each).to(device) for each in work.data())
    network, images = _channels_last(network, images)
    is_graphed = mode.compile is not None and "reduce" in mode.compile["mode"]
    if mode.compile is not None:
        network.compile(**mode.compile)
    optimizer = torch.optim.SGD(network.parameters(), LR, MOMENTUM)

    def precision() -> AbstractContextManager[Any]:
        if mode.dtype is None:
            return nullcontext()
        return torch.autocast(images.device.type, torch.bfloat16)

    def step() -> float:
        optimizer.zero_grad()
        if is_graphed:
            torch.compiler.cudagraph_mark_step_begin()
        with precision():
            outputs = network(images)
        loss = torch.nn.functional.cross_entropy(outputs.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _torch_reference(work: Work) -> Any:
    if work.reference is None:
        return zoo.build(work.network, backend="torch", **work.settings)
    references = importlib.import_module("benchmarks.by_hand.references")
    return references.make(work.reference, **work.settings)


def jax_steps(kind: str) -> Iterator[Record]:
    """JAX against flax networks, channels last, as one compiled program in bfloat16."""
    import jax
    import jax.numpy as jnp

    backend = backends.get("jax")
    device = device_of(backend, kind)
    platform, _, number = device.partition(":")
    place = jax.devices(platform)[int(number or 0)]
    contests = []
    for work in PLANS[kind].values():
        if work.jax is None:
            continue
        by_hand = importlib.import_module(f"benchmarks.by_hand.{work.jax}")
        theirs = by_hand.training_step(*work.data(), dtype=jnp.bfloat16, device=place)
        mine = ours_in(backend, device, work, "bfloat16")
        yield {"network": work.title, "first losses": [mine(), theirs()]}
        contests.append((work, mine, theirs))
    yield READY
    for work, mine, theirs in contests:
        yield _contest(kind, f"{work.title}, JAX, bfloat16", mine, theirs)


def ours_in(backend: Any, device: str, work: Work, dtype: str) -> Callable[[], float]:
    """Return a training step of ours in a shorter type."""
    return ours(backend, device, work, Mode(dtype, dtype=dtype, by_channel=True))


def chainer_steps(kind: str) -> Iterator[Record]:
    """Chainer in float32, on CuPy where the device is a GPU, against its own network."""
    backend = backends.get("chainer")
    device = device_of(backend, kind)
    import chainer

    contests = []
    for work in PLANS[kind].values():
        if work.chainer is None:
            continue
        by_hand = importlib.import_module(f"benchmarks.by_hand.{work.chainer}")
        inputs, labels = work.data()
        data = inputs, labels.astype(np.int32)
        theirs = by_hand.training_step(*data, device=chainer.get_device(device))
        mine = ours(backend, device, work)
        yield {"network": work.title, "first losses": [mine(), theirs()]}
        contests.append((work, mine, theirs))
    yield READY
    for work, mine, theirs in contests:
        yield _contest(kind, f"{work.title}, Chainer, float32", mine, theirs)


def _contest(
    kind: str, name: str, mine: Callable[[], object], theirs: Callable[[], object]
) -> Record:
    """Return the time of a step by that of one by hand; on the host there is no limit."""
    limit = 1 / GOAL if kind == "gpu" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asdict(compare(name, mine, theirs, pairs=PAIRS[kind], limit=limit))
