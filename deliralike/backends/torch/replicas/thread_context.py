"""PyTorch's settings of the calling thread, and their transfer to the threads of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from deliralike.backends.torch import unstable
from deliralike.backends.torch.mixed_precision import guard_again
from deliralike.parallel.replicas.run_in_threads import blas_threads


def thread_context(devices: Sequence[str]) -> Callable[[], AbstractContextManager[Any]]:
    """Return a maker of contexts in which another thread has this thread's settings of PyTorch.

    They are grad and inference mode, autocast with what CPUs compute in float32 within it, default
    device, hooks on saved tensors, and the streams of these devices.
    """
    settings = [
        *_grad_mode(),
        *_autocast(),
        guard_again,
        *_default_device(),
        *_saved_tensors_hooks(),
    ]
    return partial(_Contexts, [*settings, *_streams(devices)])


def device_names(devices: Sequence[Any] | None, otherwise: str) -> list[str]:
    """Return the names of devices; for None all GPUs, or `otherwise` where there is none."""
    if devices is None:
        devices = list(range(torch.cuda.device_count())) or [otherwise]
    return [device_name(device) for device in devices]


def device_name(device: Any) -> str:
    """Return the name of a device: a GPU's number (-1 is the CPU), a name or a ``torch.device``."""
    if isinstance(device, int):
        return "cpu" if device == -1 else f"cuda:{device}"
    device = torch.device(device)
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu" if device.type == "cpu" else str(device)


def current_device(device: str) -> AbstractContextManager[Any]:
    """Return a context in which ``"cuda"`` means this device."""
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()


@contextmanager
def divided_threads(replicas: int, devices: Sequence[str]) -> Iterator[None]:
    """Divide PyTorch's CPU threads, and those of every BLAS, among replicas, then restore them."""
    if replicas == 1 or "cpu" not in devices:
        yield
        return
    total = torch.get_num_threads()
    number = max(1, total // replicas)
    token = _threads_per_replica.set(number)
    try:
        torch.set_num_threads(number)
        with blas_threads(number):
            yield
    finally:
        torch.set_num_threads(total)
        _threads_per_replica.reset(token)


def limit_this_thread() -> None:
    """Set the number from `divided_threads` in this thread: PyTorch keeps one for each thread."""
    number = _threads_per_replica.get()
    if number is not None and torch.get_num_threads() != number:
        torch.set_num_threads(number)


_threads_per_replica: ContextVar[int | None] = ContextVar(
    "deliralike_torch_threads", default=None
)


class _Contexts(ExitStack):
    """Several contexts as one.

    No generator, as the rest of one might run later in another thread, after its replica was
    stopped.
    """

    def __init__(
        self, makers: Sequence[Callable[[], AbstractContextManager[Any]]]
    ) -> None:
        super().__init__()
        self.makers = makers

    def __enter__(self) -> _Contexts:
        for make in self.makers:
            self.enter_context(make())
        return self


def _grad_mode() -> list[Callable]:
    if torch.is_inference_mode_enabled():
        return [partial(torch.inference_mode, True)]
    return [partial(torch.set_grad_enabled, torch.is_grad_enabled())]


def _autocast() -> list[Callable]:
    is_cached = torch.is_autocast_cache_enabled()
    makers: list[Callable] = []
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            makers.append(
                partial(torch.autocast, kind, dtype=dtype, cache_enabled=is_cached)
            )
    return makers


def _default_device() -> list[Callable]:
    device = torch.get_default_device()
    return [] if device == torch.device("cpu") else [partial(torch.device, device)]


def _saved_tensors_hooks() -> list[Callable]:
    hooks = unstable.saved_tensors_hooks()
    if hooks is None:
        return []
    return [partial(torch.autograd.graph.saved_tensors_hooks, *hooks)]


def _streams(devices: Sequence[str]) -> list[Callable]:
    """Return the contexts of the caller's streams: there a replica's work follows the caller's."""
    gpus = sorted({device for device in devices if device.startswith("cuda")})
    return [partial(torch.cuda.stream, torch.cuda.current_stream(gpu)) for gpu in gpus]
