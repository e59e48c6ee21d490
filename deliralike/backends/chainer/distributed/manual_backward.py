"""Backward passes in a loop of the user's own, with gradients averaged over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deliralike import nest
from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import CapabilityError
from deliralike.network.wrapper import WrapperNetwork


def mean_gradients(
    network: WrapperNetwork,
    call: Callable[[Any], Any],
    arguments: Any,
    weight: Callable[[], float],
) -> Any:
    """Return the outputs of a call; backward from them leaves the mean gradients of all processes.

    Args:
        weight: A function, called after the call, that returns the weight of this process's
            gradients in the mean.
    """
    variables = {id(leaf): leaf for leaf in nest.leaves(arguments) if _has_graph(leaf)}
    detached = {key: chainer.Variable(leaf.array) for key, leaf in variables.items()}

    def detach(leaf: Any) -> Any:
        return detached.get(id(leaf), leaf)

    leaves, structure = nest.flatten(call(nest.map(detach, arguments)))
    computed = [
        leaf for leaf in leaves if _has_graph(leaf) and leaf.creator_node is not None
    ]
    if not computed:
        return structure.unflatten(leaves)
    node = _MeanGradients(network, computed, list(detached.values()), weight)
    outputs = node.apply((*node.parameters.values(), *variables.values()))
    by_leaf = {id(leaf): output for leaf, output in zip(computed, outputs, strict=True)}
    return structure.unflatten([by_leaf.get(id(leaf), leaf) for leaf in leaves])


class _MeanGradients(chainer.FunctionNode):
    """A whole network as one function of its parameters and inputs.

    The gradient of the outputs is multiplied by the weight of this process on its way in, and
    divided by it where it continues to the functions that produced the inputs.
    """

    def __init__(
        self,
        network: WrapperNetwork,
        outputs: Sequence[Any],
        inputs: list[Any],
        weight: Callable[[], float],
    ) -> None:
        self.network: Any = network
        self.outputs_inside = outputs
        self.inputs_inside = inputs
        self.parameters = network.trainable_parameters()
        self.weight = 1.0
        self.refusal = ""
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
        # Inputs of this node are the parameters, then the inputs of the network.
        inside = [*self.parameters.values(), *self.inputs_inside]
        wanted = [inside[index] for index in indexes]
        weighted = [None if each is None else each * self.weight for each in gradients]
        results = arrays.gradients_through(self.outputs_inside, weighted, wanted)
        names = list(self.parameters)
        of_parameters = {}
        of_inputs = []
        for index, gradient in zip(indexes, results, strict=True):
            if index < len(names):
                of_parameters[names[index]] = gradient
            else:
                of_inputs.append(None if gradient is None else gradient / self.weight)
        means = self._means(of_parameters)
        # `indexes` are in ascending order: parameters first.
        return (*(means[name] for name in of_parameters), *of_inputs)

    def _means(self, gradients: dict[str, Any]) -> dict[str, Any]:
        if not gradients:
            return gradients
        raw: dict[str, Any] = dict.fromkeys(gradients)
        for name, gradient in gradients.items():
            if gradient is not None:
                raw[name] = arrays.raw(gradient)
        means: dict[str, Any] = dict(self.network.parallelism.mean_gradients(raw))
        for name, mean in means.items():
            if mean is not None:
                means[name] = chainer.Variable(mean)
        return means


def _has_graph(leaf: Any) -> bool:
    return isinstance(leaf, chainer.Variable) and leaf.requires_grad
