"""What PyTorch keeps for each thread, and how a replica's thread gets what the calling thread has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch


def carried(places: Sequence[str]) -> Callable[[], AbstractContextManager[Any]]:
    """A context for another thread, with what holds in this one: see the functions below."""
    settings = [setting for find in (_grad, _autocast, _default_device, _saved_tensors) for setting in find()]
    return partial(_entered, [*settings, *_streams(places)])


def devices_of(given: Sequence[Any] | None, otherwise: str) -> list[str]:
    """Names of devices: of numbers of GPUs, names or ``torch.device``; for None all GPUs, or `otherwise` without any."""
    if given is None:
        given = list(range(torch.cuda.device_count())) or [otherwise]
    return [f"cuda:{device}" if isinstance(device, int) else _full_name(torch.device(device)) for device in given]


def _full_name(device: torch.device) -> str:
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu" if device.type == "cpu" else str(device)


@contextmanager
def _entered(settings: Sequence[Callable[[], AbstractContextManager[Any]]]) -> Iterator[None]:
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting())
        yield


def _grad() -> list[Callable]:
    grad = partial(torch.set_grad_enabled, torch.is_grad_enabled())
    return [partial(torch.inference_mode, True)] if torch.is_inference_mode_enabled() else [grad]


def _autocast() -> list[Callable]:
    cached = torch.is_autocast_cache_enabled()
    return [partial(torch.autocast, kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=cached)
            for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]  # fmt: skip


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
