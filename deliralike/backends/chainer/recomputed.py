"""Activation checkpointing on Chainer.

`chainer.functions.forget` takes variables alone and gives no gradients of parameters to
`chainer.grad`; here parameters are inputs of the function, and any nest goes in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any

from deliralike import nest, random
from deliralike.backends.chainer import random as native_random
from deliralike.backends.chainer.arrays import (
    Variable,
    chainer,
    gradients_through,
    is_array,
)
from deliralike.errors import CapabilityError
from deliralike.parallel.replicas import context as replicas


def recomputed(
    block: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """See `Backend.recomputed`."""
    if not (chainer.config.train and chainer.config.enable_backprop):
        return call(block, *args, **kwargs)
    given = nest.split((args, kwargs), Variable)

    def run(variables: Sequence[Any]) -> Any:
        own_args, own_kwargs = given.unflatten(variables)
        return call(block, *own_args, **own_kwargs)

    parameters = [
        each for each in block.params(include_uninit=False) if each.requires_grad
    ]
    function = _Recomputed(block, run, len(given.arrays), parameters)
    outputs = function.apply([*given.arrays, *parameters])
    return function.returned.unflatten(outputs)


class _Recomputed(chainer.FunctionNode):
    """A call of a block, of which the inputs are kept."""

    def __init__(
        self, block: Any, run: Callable[..., Any], count: int, parameters: Sequence[Any]
    ) -> None:
        self.block, self.run, self.count, self.parameters = (
            block,
            run,
            count,
            parameters,
        )
        self.stream, self.train = random.position(), chainer.config.train
        self.context = copy_context()  # of mixed precision

    def forward(self, inputs: Any) -> Any:
        """Compute the outputs without a graph."""
        self.device = chainer.backend.get_device_from_array(*inputs).name
        draws = native_random.current()
        # what the block draws from: a replica has a generator of its own
        self.draws = None if draws is None else draws.copy()
        self.random_state = (
            None if _shares_generator() else native_random.state(self.device)
        )
        with chainer.no_backprop_mode(), _refusing_shared_draws():
            outputs = self.run([Variable(each) for each in inputs[: self.count]])
        self.returned = nest.split(outputs, Variable)
        self.retain_inputs(tuple(range(self.count)))
        return tuple(leaf.array for leaf in self.returned.arrays)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        """Compute once more, with a graph, and go back through it."""
        if chainer.config.enable_backprop:
            raise CapabilityError(
                "there are no second derivatives through a checkpointed block on Chainer: do not "
                "checkpoint it"
            )
        retained = self.get_retained_inputs()
        inputs = [
            Variable(each.array, requires_grad=each.dtype.kind == "f")
            for each in retained
        ]
        context = self.context.copy()
        if self.draws is not None:
            context.run(native_random.follow, self.draws.copy())
        with self._again():
            outputs = context.run(self._drawing_again, inputs)
        variables = nest.split(outputs, Variable).arrays
        wanted = [*inputs, *self.parameters]
        found = gradients_through(variables, gradients, wanted)
        return tuple(found[index] for index in indexes)

    def _drawing_again(self, inputs: Sequence[Any]) -> Any:
        with random.following(self.stream):
            return self.run(inputs)

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Draw the same masks, and leave buffers as they are."""
        before = []
        for link in self.block.links():
            for name in link._persistent:
                present = getattr(link, name)
                value = present.copy() if is_array(present) else present
                before.append((link, name, present, value))
        if self.random_state is not None:
            now = native_random.state(self.device)
            native_random.load_state(self.device, self.random_state)
        train = chainer.using_config("train", self.train)
        try:
            with train, chainer.force_backprop_mode():
                yield
        finally:
            if self.random_state is not None:
                native_random.load_state(self.device, now)
            for link, name, value, former in before:
                if is_array(value):
                    value[...] = former
                object.__setattr__(link, name, value)


def _shares_generator() -> bool:
    """Return whether other replicas of this process draw from Chainer's own generator too."""
    replica = replicas.current()
    return replica is not None and replica.rendezvous.parties > 1


def _refusing_shared_draws() -> AbstractContextManager[Any]:
    """Return a context that refuses what draws from Chainer's own generator in replicas.

    Their threads share it, so that what one of them has drawn cannot be drawn again.
    """
    return _Refusing() if _shares_generator() else nullcontext()


class _Refusing(chainer.FunctionHook):
    name = "deliralike: checkpointed blocks in replicas"

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        if type(function).__module__.startswith("chainer.functions.noise."):
            raise CapabilityError(
                f"a checkpointed block draws by Chainer's own {type(function).__name__}, whose "
                "masks cannot be drawn once more in replicas: use the layers of net.nn, or leave "
                "the block as it is"
            )
