"""What PyTorch keeps for each thread, and how a replica's thread gets what the calling thread
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from deliralike.parallel.replicas.run_in_threads import blas_threads


def carried(places: Sequence[str]) -> Callable[[], AbstractContextManager[Any]]:
    """A context for another thread, with what holds in this one: see the functions below."""
    settings = [
        setting
        for find in (_grad, _autocast, _default_device, _saved_tensors)
        for setting in find()
    ]
    return partial(_Entered, [*settings, *_streams(places)])


def devices_of(given: Sequence[Any] | None, otherwise: str) -> list[str]:
    """The names of devices; for None all GPUs, or `otherwise` where there is none."""
    given = (list(range(torch.cuda.device_count())) or [otherwise]) if given is None else given
    return [named(device) for device in given]


def named(device: Any) -> str:
    """The name of a device given as the number of a GPU (-1 is the CPU), a name or a
    ``torch.device``.
    """
    if isinstance(device, int):
        return "cpu" if device == -1 else f"cuda:{device}"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu" if device.type == "cpu" else str(device)


def current_device(place: str) -> AbstractContextManager[Any]:
    """A context in which ``"cuda"`` means this device."""
    return torch.cuda.device(place) if place.startswith("cuda") else nullcontext()


@contextmanager
def sharing_threads(replicas: int, places: Sequence[str]) -> Iterator[None]:
    """PyTorch's own threads and those of every BLAS, shared out among replicas on the CPU, and
    restored.
    """
    if replicas == 1 or "cpu" not in places:
        yield
        return
    before = torch.get_num_threads()
    share = max(1, before // replicas)
    token = _share.set(share)
    try:
        torch.set_num_threads(share)
        with blas_threads(share):
            yield
    finally:
        torch.set_num_threads(before)
        _share.reset(token)


def take_share() -> None:
    """Give this thread its share of threads: PyTorch keeps the number for each thread."""
    share = _share.get()
    if share is not None and torch.get_num_threads() != share:
        torch.set_num_threads(share)


_share: ContextVar[int | None] = ContextVar("deliralike_torch_threads", default=None)


class _Entered(ExitStack):
    """Several contexts as one. No generator: of a replica that is stopped nothing may run later in
    another thread.
    """

    def __init__(self, settings: Sequence[Callable[[], AbstractContextManager[Any]]]) -> None:
        super().__init__()
        self.settings = settings

    def __enter__(self) -> _Entered:
        for setting in self.settings:
            self.enter_context(setting())
        return self


def _grad() -> list[Callable]:
    grad = partial(torch.set_grad_enabled, torch.is_grad_enabled())
    return [partial(torch.inference_mode, True)] if torch.is_inference_mode_enabled() else [grad]


def _autocast() -> list[Callable]:
    cached = torch.is_autocast_cache_enabled()
    return [
        partial(torch.autocast, kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=cached)
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind)
    ]


def _default_device() -> list[Callable]:
    device = torch.get_default_device()
    return [] if device == torch.device("cpu") else [partial(torch.device, device)]


def _saved_tensors() -> list[Callable]:
    pair = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return [] if pair is None else [partial(torch.autograd.graph.saved_tensors_hooks, *pair)]


def _streams(places: Sequence[str]) -> list[Callable]:
    """Work of a replica comes after the caller's on the same stream."""
    gpus = sorted({place for place in places if place.startswith("cuda")})
    return [partial(torch.cuda.stream, torch.cuda.current_stream(gpu)) for gpu in gpus]
