"""Random layers' masks and noise: portable, and native with the generators they are drawn from.

Inside replicas native ones are reproducible, and different in each replica and each call.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from deliralike import random
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.context import current as current_replica

_generators: WeakKeyDictionary[Replica, dict[torch.device, torch.Generator]] = (
    WeakKeyDictionary()
)


def draws_masks(module: torch.nn.Module) -> bool:
    """Return whether a layer draws its masks by `deliralike.nn`.

    PyTorch's own layers draw from its global generator.
    """
    return getattr(module, "draws_masks", False)


def draws_portably() -> bool:
    """Return whether masks come from the portable stream.

    A program of ``torch.compile`` cannot see which stream is this thread's: `portable_numbers`
    looks when it runs.
    """
    if torch.compiler.is_compiling():
        return random.is_open()
    return random.current() is not None


def portable_numbers(
    path: str, shape: Sequence[int], like: torch.Tensor, kind: str, p: float
) -> torch.Tensor:
    """Return the portable numbers of the layer at a path; they are drawn on the host.

    Args:
        like: A tensor of the type of the numbers, on their device.
        kind: See `deliralike.random.numbers`.
    """
    draw = _portable_in_program if torch.compiler.is_compiling() else _portable
    return draw(like.detach(), shape, kind, p, path)


def native_numbers(
    shape: Sequence[int], like: torch.Tensor, kind: str, p: float
) -> torch.Tensor:
    """Return numbers of PyTorch's generator: on a CPU those that its own dropout and noise draw."""
    draw = _native_in_program if torch.compiler.is_compiling() else _native
    return draw(like.detach(), shape, kind, p)


def _portable(
    like: torch.Tensor, shape: Sequence[int], kind: str, p: float, path: str
) -> torch.Tensor:
    stream = random.current()
    if stream is None:  # another thread's is open, and the program cannot know whose
        return _native(like, shape, kind, p)
    draw = stream.next_draw(path, "torch")
    numbers = random.numbers(stream, path, tuple(shape), kind, p, draw)
    return torch.from_numpy(numbers).to(like.device, like.dtype)


def _native(
    like: torch.Tensor, shape: Sequence[int], kind: str, p: float
) -> torch.Tensor:
    return _filled(_empty(like, shape), kind, p)


def _filled(
    empty: torch.Tensor, kind: str, p: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    if kind == "keep":
        return empty.bernoulli_(1.0 - p, generator=generator)
    if kind == "normal":
        return empty.normal_(generator=generator)
    return empty.uniform_(generator=generator)


def _empty(like: torch.Tensor, shape: Sequence[int], *_: Any) -> torch.Tensor:
    if tuple(shape) == tuple(like.shape):
        return torch.empty_like(like)
    return like.new_empty(tuple(shape))


def _operator(name: str, draw: Callable[..., torch.Tensor], *tags: torch.Tag) -> Any:
    """Return a draw as one operator of compiled programs, which is called anew in each step.

    By its tag it is neither left out nor made a second time; inductor would draw otherwise.
    """
    tags = (torch.Tag.nondeterministic_seeded, *tags)
    operator = torch.library.custom_op(
        f"deliralike::{name}", draw, mutates_args=(), tags=tags
    )
    operator.register_fake(_empty)
    return operator


_native_in_program = _operator("native_numbers", _native)
_portable_in_program = _operator(
    "portable_numbers", _portable, torch.Tag.cudagraph_unsafe
)


def draws_by_key() -> bool:
    """Return whether numbers must come from a replica's own generator."""
    replica = current_replica()
    return replica is not None and replica.seed != 0


@torch.compiler.disable
def keyed_numbers(
    shape: Sequence[int], like: torch.Tensor, kind: str, p: float
) -> torch.Tensor:
    """Return numbers of the generator of the running replica."""
    empty = like.new_empty(tuple(shape))
    return _filled(empty, kind, p, _generator(like.device))


def _generator(device: torch.device) -> torch.Generator:
    """Return the generator for the call's seed and the replica's index; each draw advances it."""
    replica = current_replica()
    assert replica is not None  # see `draws_by_key`
    by_device = _generators.setdefault(replica, {})
    if device not in by_device:
        key = np.random.SeedSequence([replica.seed, replica.index]).generate_state(
            1, np.uint64
        )
        by_device[device] = torch.Generator(device).manual_seed(int(key[0]))
    return by_device[device]


def drawing_again() -> AbstractContextManager[Any]:
    """Return a context in which the running replica draws once more what it draws from now on.

    Outside of replicas masks come from PyTorch's own generator, which this context leaves alone.
    """
    replica = current_replica()
    if replica is None:
        return nullcontext()
    again = replace(replica)  # another object, and so with other generators
    generators: dict[torch.device, torch.Generator] = {}
    _generators[again] = generators
    for device, generator in _generators.get(replica, {}).items():
        generators[device] = generator.clone_state()
    return entered(again)


def state() -> dict[str, np.ndarray]:
    """Return the states of PyTorch's generators, of the CPU and of CUDA devices in use."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        for index, value in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda:{index}"] = value
    return {name: value.numpy().copy() for name, value in states.items()}


def load_state(state: Mapping[str, np.ndarray]) -> None:
    """Set the generators' states; devices that are missing here are left out."""
    torch.set_rng_state(torch.tensor(state["cpu"]))
    for index in range(torch.cuda.device_count()):
        if f"cuda:{index}" in state:
            torch.cuda.set_rng_state(torch.tensor(state[f"cuda:{index}"]), index)
