"""Activation checkpointing on Chainer.

`chainer.functions.forget` takes variables alone and gives no gradients of parameters to
`chainer.grad`; here parameters are inputs of the function, and any nest goes in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from deliralike import nest, random
from deliralike.backends.chainer import random as native_random
from deliralike.backends.chainer.arrays import Variable, chainer, is_array
from deliralike.errors import CapabilityError


def recomputed(
    block: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """See `Backend.recomputed`."""
    if not (chainer.config.train and chainer.config.enable_backprop):
        return call(block, *args, **kwargs)
    leaves, structure = nest.flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Variable)]

    def run(variables: Sequence[Any]) -> Any:
        filled = [*leaves]
        for place, variable in zip(places, variables, strict=True):
            filled[place] = variable
        own_args, own_kwargs = nest.unflatten(structure, filled)
        return call(block, *own_args, **own_kwargs)

    parameters = [each for each in block.params(include_uninit=False) if each.requires_grad]
    function = _Recomputed(block, run, len(places), parameters)
    outputs = iter(function.apply([*(leaves[place] for place in places), *parameters]))
    found = [next(outputs) if is_made else leaf for leaf, is_made in function.made]
    return nest.unflatten(function.structure, found)


class _Recomputed(chainer.FunctionNode):
    """A call of a block, of which the inputs are kept."""

    def __init__(
        self, block: Any, run: Callable[..., Any], count: int, parameters: Sequence[Any]
    ) -> None:
        self.block, self.run, self.count, self.parameters = block, run, count, parameters
        self.stream, self.train = random.current(), chainer.config.train
        self.context = copy_context()  # of mixed precision

    def forward(self, inputs: Any) -> Any:
        """Compute the outputs without a graph."""
        self.device = chainer.backend.get_device_from_array(*inputs).name
        self.random_state = native_random.state(self.device)
        with chainer.no_backprop_mode():
            made = self.run([Variable(each) for each in inputs[: self.count]])
        leaves, self.structure = nest.flatten(made)
        self.made = [(leaf, isinstance(leaf, Variable)) for leaf in leaves]
        self.retain_inputs(tuple(range(self.count)))
        return tuple(leaf.array for leaf, is_made in self.made if is_made)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        """Compute once more, with a graph, and go back through it."""
        if chainer.config.enable_backprop:
            raise CapabilityError(
                "there are no second derivatives through a checkpointed block on Chainer: do not "
                "checkpoint it"
            )
        retained = self.get_retained_inputs()
        inputs = [Variable(each.array, requires_grad=each.dtype.kind == "f") for each in retained]
        with self._again():
            made = nest.leaves(self.context.copy().run(self.run, inputs))
        outputs = [leaf for leaf in made if isinstance(leaf, Variable)]
        wanted = [*inputs, *self.parameters]
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad
        ]
        found = chainer.grad(
            [output for output, _ in pairs], wanted, [gradient for _, gradient in pairs]
        )
        return tuple(found[index] for index in indexes)

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Draw the same masks, and leave buffers as they are."""
        before = []
        for link in self.block.links():
            for name in link._persistent:
                value = getattr(link, name)
                before.append((link, name, value, value.copy() if is_array(value) else value))
        now = native_random.state(self.device)
        native_random.load_state(self.device, self.random_state)
        train = chainer.using_config("train", self.train)
        try:
            with random.following(self.stream), train, chainer.force_backprop_mode():
                yield
        finally:
            native_random.load_state(self.device, now)
            for link, name, value, former in before:
                if is_array(value):
                    value[...] = former
                object.__setattr__(link, name, value)
