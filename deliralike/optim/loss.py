"""The loss of an update: how it is computed, and how losses of several shares become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from deliralike import nest, random
from deliralike.errors import (
    ArgumentError,
    BatchError,
    SettingError,
    ShapeError,
    refuse_unknown,
)
from deliralike.nn.checks import SHORT_TYPES, type_name
from deliralike.nn.means import denominators

REDUCTIONS = ("mean", "sum", "denominator")
LossFunction = Callable[..., Any]


def no_scalar(shape: Sequence[int]) -> ShapeError:
    """Return the error for a loss that is an array."""
    return ShapeError(
        f"the loss function gave an array of shape {tuple(shape)}, wanted a scalar: take its mean; "
        "where the network itself gives its loss, each replica gives one: "
        "deliralike.in_replicas(loss_function)"
    )


def no_array(loss: Any) -> ArgumentError:
    """Return the error for a loss without a graph, such as a number of Python."""
    return ArgumentError(
        f"the loss function gave {loss!r}, a {type(loss).__name__}, of which no gradient can be "
        "computed: return the framework's own scalar, without float(...) or .item()"
    )


@dataclass(frozen=True)
class LossResult:
    """The parts of what a loss function returned.

    Attributes:
        value: The loss, a native scalar.
        extras: What the function returned after the loss; None where it returned the loss alone.
        denominator: The number to divide a sum by; None unless the loss declares one.
    """

    value: Any
    extras: tuple | None = None
    denominator: Any = None

    @classmethod
    def of(cls, result: Any) -> LossResult:
        """Return the parts of a loss, or of a tuple of a loss and anything else."""
        if isinstance(result, tuple):
            return cls(result[0], result[1:])
        return cls(result)

    @property
    def returned(self) -> Any:
        """Return what a loss function with these parts returns, without the denominator."""
        if self.extras is None:
            return self.value
        return (self.value, *self.extras)

    def with_value(self, value: Any) -> LossResult:
        """Return the same parts with another loss."""
        return LossResult(value, self.extras, self.denominator)


def value_of(result: Any) -> Any:
    """Return the loss in what a loss function returned: itself, or a tuple that begins with it."""
    return result[0] if isinstance(result, tuple) else result


def with_value(result: Any, value: Any) -> Any:
    """Return what a loss function returned with another loss."""
    return (value, *result[1:]) if isinstance(result, tuple) else value


@dataclass(frozen=True)
class Loss:
    """A loss function with all that an update needs to know about it.

    Equal ones share a compiled program.

    Attributes:
        function: ``function(network, *batch)`` returns the loss, or a tuple of the loss and
            anything else.
        reduction: How losses of several shares or micro-batches become one; see `in_replicas`.
        spec: What to split, copy and keep of the batch where it is split over replicas.
        per_replica: Whether each replica computes the function on its own share of the batch.
        precision: The shorter type that the forward pass computes in; None for the network's own.
        is_scaled: Whether the first argument before the batch is a number that multiplies the loss.
        reports_denominator: Whether the denominator of the whole batch comes after the loss.
        is_mean: Whether `function` returns a mean and its denominator, and not a sum.
        divisor: The number that a sum with a denominator is divided by instead of it.
    """

    function: Callable[..., Any]
    reduction: str = "mean"
    # a nest, which may hold what has no hash
    spec: Any = field(default=None, hash=False)
    per_replica: bool = False
    precision: str | None = None
    is_scaled: bool = False
    reports_denominator: bool = False
    is_mean: bool = False
    divisor: float | None = None

    def __call__(self, network: Any, *batch: Any) -> Any:
        """Return the loss of the whole batch, or a tuple of it and the function's other results."""
        if self.per_replica:
            return network.parallelism.compute_loss(self, *batch)
        return self.whole(network, *batch)

    def forward_backward(
        self, network: Any, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Return the same as a call, after a backward pass from the loss.

        Args:
            backward: ``backward(value)`` runs the native backward pass.
        """
        if self.per_replica:
            return network.parallelism.forward_backward(self, backward, *batch)
        result = self.whole(network, *batch)
        backward(value_of(result))
        return result

    def compute(self, network: Any, *batch: Any) -> Any:
        """Return the function's result for a batch, its loss scaled and in the network's type.

        One with a denominator is in float32 at least: float16 has no number above 65,504.
        """
        scale = None
        if self.is_scaled:
            scale, *rest = batch
            batch = tuple(rest)
        with random.from_the_first_draw():
            if self.precision is None:
                result = self.function(network, *batch)
            else:
                device = network.device_name
                with network.backend.computing_in(self.precision, device):
                    result = self.function(network, *batch)
                value = network.nn.cast(value_of(result), network.dtype_name)
                result = with_value(result, value)
        if self.reduction == "denominator":
            result = with_value(result, widened(network, value_of(result)))
        if self.is_mean:
            mean, denominator, *_ = result
            result = with_value(result, mean * constant(network, denominator, mean))
        if scale is None:
            return result
        return with_value(result, value_of(result) * scale)

    def whole(self, network: Any, *batch: Any) -> Any:
        """Return the loss on one network that sees the whole batch."""
        result = self.compute(network, *batch)
        if not self.per_replica and self.reduction != "denominator":
            return result
        parts = self.parts(result)
        value = parts.value
        denominator = parts.denominator
        if denominator is not None:
            denominator = constant(network, denominator, value)
            value = value / (self.divisor or nonzero(denominator))
        return self.result(LossResult(value, parts.extras, denominator))

    def parts(self, result: Any) -> LossResult:
        """Return the parts of what `compute` returned on a share.

        Raises:
            ArgumentError: A denominator is declared, and the function returned none.
            ShapeError: The loss is no scalar.
        """
        parts = LossResult.of(result)
        shape = tuple(getattr(parts.value, "shape", ()))
        if shape:
            raise no_scalar(shape)
        if self.reduction != "denominator":
            return parts
        if not parts.extras:
            raise ArgumentError(
                "a loss with reduction='denominator' gives a tuple (sum, denominator, ...), not a "
                f"{type(result).__name__}: return the sum over the share and what it is to be "
                "divided by"
            )
        denominator, *extras = parts.extras
        return LossResult(parts.value, tuple(extras) or None, denominator)

    def result(self, parts: LossResult) -> Any:
        """Return what a call returns, from the parts of the whole batch."""
        if self.reports_denominator:
            return (parts.value, parts.denominator, *(parts.extras or ()))
        return parts.returned

    def weights(self, sizes: Sequence[int]) -> list[float]:
        """Return the weight of each share's loss where no denominator is declared."""
        samples = sum(sizes)
        if self.reduction != "mean" or not samples:
            return [1.0] * len(sizes)
        return [size / samples for size in sizes]

    def in_replicas(self) -> Loss:
        """Return this loss as one that the replicas compute; a mean over samples by default."""
        return replace(self, per_replica=True)

    def recorded(self) -> Self:
        """Return this loss, a mean by itself, as one that declares its denominator.

        It is the one that the mean loss of `nn` was divided by (labels that count, or their
        weights), and the number of samples where the function returns something else.
        """
        if self.reduction != "mean":
            return self
        function = Recorded(self.function)
        return replace(self, function=function, reduction="denominator", is_mean=True)

    def with_denominator(self) -> Self:
        """Return this loss with the denominator that it declares among its results."""
        return replace(self, reports_denominator=self.reduction == "denominator")

    def with_scale(self) -> Self:
        """Return this loss times a number, which comes before the batch and to every replica."""
        spec = self.spec
        if spec is not None:
            spec = ("keep", *spec)
        return replace(self, spec=spec, is_scaled=True)


@dataclass(frozen=True)
class Recorded:
    """A loss function that returns its denominator after the mean; equal ones share a program."""

    function: LossFunction

    def __call__(self, network: Any, *batch: Any) -> tuple:
        """Return the mean, what it was divided by, and the function's other results."""
        with denominators() as noted:
            parts = LossResult.of(self.function(network, *batch))
            denominator = noted.of(parts.value)
        if denominator is None:
            denominator = count_samples(batch)
        return (parts.value, denominator, *(parts.extras or ()))


def as_loss(loss_function: Callable[..., Any]) -> Loss:
    """Return a loss function as a `Loss`; a `Loss` is returned as it is.

    The reduction is the one in the function's attribute ``reduction``, else a mean.
    """
    if isinstance(loss_function, Loss):
        return loss_function
    return Loss(loss_function, getattr(loss_function, "reduction", "mean"))


def in_replicas(
    loss_function: Callable[..., Any], reduction: str = "mean", spec: Any = None
) -> Loss:
    """Return a loss that each replica computes on its own share of the batch, backward included.

    Only the losses are gathered, and the backward passes run in parallel. On a plain network it is
    the same loss.

    Args:
        loss_function: ``loss_function(network, *batch)`` as for `AbstractOptimizer.update`;
            `network` is the replica.
        reduction: How the shares' losses become that of the batch.
            ``"mean"``: each is a mean over its samples; they are weighted by their shares.
            ``"sum"``: each is a sum; they are added.
            ``"denominator"``: the function returns ``(sum, denominator)``; the loss is the sum of
            sums over the sum of denominators. For class weights and ignored labels, whose means
            have no denominator of samples.
        spec: What to split, copy and keep of the tuple `batch`; see `scatter`.

    Raises:
        SettingError: There is no such reduction.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> def summed(network, x, y):
        ...     return network.nn.cross_entropy(network(x), y, reduction="sum"), len(y)
        >>> loss = in_replicas(summed, "denominator")
        >>> import torch
        >>> tuple(loss(net, torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)).shape)
        ()
    """
    message = f"there is no reduction {reduction!r}"
    refuse_unknown(reduction, REDUCTIONS, message, SettingError)
    return Loss(loss_function, reduction, spec, per_replica=True)


def widened(network: Any, value: Any) -> Any:
    """Return a loss of 16 bits in float32, and any other as it is."""
    if not network.backend.is_array(value) or type_name(value) not in SHORT_TYPES:
        return value
    return network.nn.cast(value, "float32")


def constant(network: Any, denominator: Any, value: Any) -> Any:
    """Return a denominator without its graph, in the type of the loss that it belongs to."""
    if network.backend.is_array(denominator):
        return network.nn.stop_gradient(network.nn.cast(denominator, value))
    return denominator


def nonzero(denominator: Any) -> Any:
    """Return the denominator, or one in the place of zero.

    Where the denominator is zero the sum to be divided is zero, too.
    """
    return denominator + (denominator == 0)


def count_samples(batch: Any, dim: int = 0) -> int:
    """Return the number of samples in a batch: the size of its first array along `dim`.

    Raises:
        BatchError: There is no array with such an axis.
    """
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else None
    leaves = [first] if hasattr(first, "shape") else nest.leaves(batch)
    for leaf in leaves:
        shape = getattr(leaf, "shape", ())
        if -len(shape) <= dim < len(shape):
            return int(shape[dim])
    raise BatchError(
        f"a batch needs an array whose axis {dim} counts the samples, and this one has none"
    )
