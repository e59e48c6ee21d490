"""Backward passes in a loop of the user's own, with gradients averaged over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from deliralike import nest
from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import CapabilityError

if TYPE_CHECKING:
    from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork


def averaging(
    network: DistributedChainerNetwork,
    call: Callable[[Any], Any],
    arguments: Any,
    weight: Callable[[], float],
) -> Any:
    """Return the outputs of a call; backward from them leaves the mean gradients of all processes.

    Args:
        weight: A function, called after the call, that returns the weight of this process's
            gradients in the mean.
    """
    given = {id(leaf): leaf for leaf in nest.leaves(arguments) if _has_graph(leaf)}
    inside = {key: chainer.Variable(leaf.array) for key, leaf in given.items()}
    leaves, structure = nest.flatten(
        call(nest.map(lambda leaf: inside.get(id(leaf), leaf), arguments))
    )
    left = [leaf for leaf in leaves if _has_graph(leaf) and leaf.creator_node is not None]
    if not left:
        return structure.unflatten(leaves)
    node = _Means(network, left, list(inside.values()), weight)
    outputs = dict(
        zip(map(id, left), node.apply((*node.parameters.values(), *given.values())), strict=True)
    )
    return structure.unflatten([outputs.get(id(leaf), leaf) for leaf in leaves])


def refusing(outputs: Any) -> Any:
    """Return outputs of the whole batch, from which a backward pass raises an error.

    Without this Chainer would do nothing silently.
    """

    def leaf(value: Any) -> Any:
        return _OfAll().apply((chainer.Variable(value),))[0] if _is_floating(value) else value

    return nest.map(leaf, outputs)


class _Means(chainer.FunctionNode):
    """A whole network as one function of its parameters and inputs.

    The gradient of the outputs is multiplied by the weight of this process on its way in, and
    divided by it where it continues to the functions that produced the inputs.
    """

    def __init__(
        self,
        network: DistributedChainerNetwork,
        outputs: Sequence[Any],
        inputs: list[Any],
        weight: Callable[[], float],
    ) -> None:
        self.network, self.outputs_inside, self.inputs_inside = network, outputs, inputs
        self.parameters = network.trainable_parameters()
        self.weight, self.refusal = 1.0, ""
        try:
            self.weight = weight()
        except CapabilityError as error:  # there may be no backward pass
            self.refusal = str(error)

    def forward(self, inputs: tuple) -> tuple:
        """Return the outputs that were computed already."""
        return tuple(output.array for output in self.outputs_inside)

    def backward(self, indexes: tuple[int, ...], gradients: tuple) -> tuple:
        """Return the gradients of the parameters, averaged, and of the inputs."""
        if self.refusal:
            raise CapabilityError(self.refusal)
        if chainer.config.enable_backprop:
            raise CapabilityError(
                "gradients of gradients, over several processes: state the loss as a function, and "
                "make the update by network.backend.wrap_optimizer(optimizer, network)"
                ".update(loss_function, *batch)"
            )
        names, inside = list(self.parameters), [*self.parameters.values(), *self.inputs_inside]
        pairs = zip(self.outputs_inside, gradients, strict=True)
        outputs, entering = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
        wanted = [inside[index] for index in indexes]
        found = chainer.grad(outputs, wanted, [each * self.weight for each in entering])
        by_index = dict(zip(indexes, found, strict=True))
        own = {names[index]: by_index.pop(index) for index in indexes if index < len(names)}
        averaged = self._averaged(own)
        before = {
            index: None if each is None else each / self.weight for index, each in by_index.items()
        }
        return tuple(
            averaged[names[index]] if index < len(names) else before[index] for index in indexes
        )

    def _averaged(self, gradients: dict[str, Any]) -> dict[str, Any]:
        if not gradients:
            return gradients
        raw = {name: None if each is None else arrays.raw(each) for name, each in gradients.items()}
        means = self.network.parallelism.mean_gradients(raw)
        return {
            name: None if each is None else chainer.Variable(each) for name, each in means.items()
        }


class _OfAll(chainer.FunctionNode):
    """Outputs of the whole batch, which came from other processes without a graph."""

    def forward(self, inputs: tuple) -> tuple:
        """Return the inputs as they are."""
        return inputs

    def backward(self, indexes: tuple[int, ...], gradients: tuple) -> NoReturn:
        """Raise an error."""
        raise CapabilityError(
            "a backward pass of your own, and outputs of the whole batch have no graph: leave "
            "takes_whole out, or state the loss as a function, loss = in_replicas(loss_function), "
            "and begin at loss(network, *batch)"
        )


def _has_graph(leaf: Any) -> bool:
    return isinstance(leaf, chainer.Variable) and leaf.requires_grad


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, chainer.get_array_types()) and leaf.dtype.kind == "f"
