"""A loss that is computed inside the replicas, each on its own share, and how the shares' losses
become one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from deliralike.errors import ArgumentError, SettingError, ShapeError, suggestion

REDUCTIONS = ("mean", "sum", "denominator")


def no_scalar(shape: Sequence[int]) -> ShapeError:
    """The error for a loss that is an array."""
    return ShapeError(
        f"the loss function gave an array of shape {tuple(shape)}, wanted a scalar: take its mean; "
        "where the network itself gives its loss, each replica gives one: "
        "deliralike.in_replicas(loss_function)"
    )


@dataclass(frozen=True)
class Loss:
    """A loss function as an optimizer computes it: once, on the whole batch.

    Attributes:
        function: ``function(network, *batch)`` returns the loss, or a tuple of the loss and
            anything else.
    """

    function: Callable[..., Any]

    @property
    def reduction(self) -> str:
        """How losses of several batches become one; a mean unless the function declares another
        one.
        """
        return getattr(self.function, "reduction", "mean")

    def __call__(self, network: Any, *batch: Any) -> Any:
        """What the function returns."""
        return self.function(network, *batch)

    def whole(self, network: Any, *batch: Any) -> Any:
        """The loss on one network that sees the whole batch."""
        return self.function(network, *batch)

    def forward_backward(self, network: Any, backward: Callable[[Any], None], *batch: Any) -> Any:
        """What the function returns, after a backward pass from the loss.

        Args:
            backward: ``backward(value)`` runs the native backward pass.
        """
        result = self(network, *batch)
        backward(first_of(result))
        return result

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Any], extra_arguments: int = 0) -> Self:
        """This loss around ``wrapper(function)``.

        Args:
            extra_arguments: How many arguments the wrapped function has before the batch; every
                replica gets them as they are.
        """
        return replace(self, function=wrapper(self.function))

    def with_denominator(self) -> Self:
        """This loss, made to return the denominator that it declares after the loss; itself without
        one.
        """
        return self

    def in_replicas(self) -> InReplicas:
        """This loss, computed inside the replicas; one that declares nothing is a mean over
        samples.
        """
        return in_replicas(self.function)


def as_loss(loss_function: Callable[..., Any]) -> Loss:
    """A loss function as a `Loss`; a `Loss` is returned as it is."""
    return loss_function if isinstance(loss_function, Loss) else Loss(loss_function)


def first_of(result: Any) -> Any:
    """The loss itself, from what a loss function returned."""
    return result[0] if isinstance(result, tuple) else result


@dataclass(frozen=True)
class InReplicas(Loss):
    """A per-replica loss: a loss function that runs inside each replica, with a declared reduction.

    See `in_replicas`.
    """

    reduction: str = "mean"
    spec: Any = field(default=None, hash=False)  # a nest, which may hold what has no hash
    reports: bool = False  # whether the denominator of the whole batch comes after the loss

    def __call__(self, network: Any, *batch: Any) -> Any:
        """The loss of the whole batch."""
        return network.parallelism.compute_loss(self, *batch)

    def forward_backward(self, network: Any, backward: Callable[[Any], None], *batch: Any) -> Any:
        """The loss of the whole batch, after backward passes from the losses of all shares."""
        return network.parallelism.forward_backward(self, backward, *batch)

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Any], extra_arguments: int = 0) -> Self:
        """This loss around ``wrapper(function)``; see `Loss.wrap`."""
        spec = self.spec
        if spec is not None:
            spec = ("keep",) * extra_arguments + tuple(spec)
        return replace(self, function=wrapper(self.function), spec=spec)

    def with_denominator(self) -> Self:
        """This loss, made to return the denominator that it declares after the loss; itself without
        one.
        """
        return replace(self, reports=True) if self.reduction == "denominator" else self

    def in_replicas(self) -> InReplicas:
        """The loss itself."""
        return self

    def whole(self, network: Any, *batch: Any) -> Any:
        """The loss on one network that sees the whole batch."""
        value, denominator, extras = self.taken_apart(self.function(network, *batch))
        if self.reduction == "denominator":
            denominator = constant(network, denominator)
            value = value / or_one(denominator)
        return self.result(value, denominator, extras)

    def result(self, value: Any, denominator: Any, extras: Sequence[Any] | None) -> Any:
        """The loss of the whole batch, and what else is to be handed back with it."""
        beside = ([denominator] if self.reports else []) + list(extras or ())
        return (value, *beside) if self.reports or extras is not None else value

    def taken_apart(self, result: Any) -> tuple[Any, Any, tuple | None]:
        """The loss of a share, its denominator (None unless declared), and what else came (None for
        nothing).

        Raises:
            ArgumentError: A denominator is declared, and the function gave none.
            ShapeError: The loss is no scalar.
        """
        loss = result[0] if isinstance(result, tuple) else result
        if tuple(getattr(loss, "shape", ())):
            raise no_scalar(loss.shape)
        if self.reduction != "denominator":
            return loss, None, result[1:] if isinstance(result, tuple) else None
        if not isinstance(result, tuple) or len(result) < 2:
            raise ArgumentError(
                "a loss with reduction='denominator' gives a tuple (sum, denominator, ...), not a "
                f"{type(result).__name__}: return the sum over the share and what it is to be "
                "divided by"
            )
        return loss, result[1], result[2:] or None

    def weights(self, sizes: Sequence[int]) -> list[float]:
        """What each share's loss counts for when no denominator is declared."""
        samples = sum(sizes)
        return (
            [size / samples if samples else 1.0 for size in sizes]
            if self.reduction == "mean"
            else [1.0] * len(sizes)
        )


def in_replicas(
    loss_function: Callable[..., Any], reduction: str = "mean", spec: Any = None
) -> InReplicas:
    """A loss function that each replica computes on its own share of the batch, backward included.

    Nothing is gathered but the losses, and backward runs side by side. On a plain network it is the
    same loss.

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
    if reduction not in REDUCTIONS:
        raise SettingError(
            f"there is no reduction {reduction!r}. {suggestion(reduction, REDUCTIONS)}"
        )
    return InReplicas(loss_function, reduction, spec)


def constant(network: Any, denominator: Any) -> Any:
    """A denominator without its graph."""
    return (
        network.nn.stop_gradient(denominator)
        if network.backend.is_array(denominator)
        else denominator
    )


def or_one(denominator: Any) -> Any:
    """The denominator, or one in the place of zero: where nothing counts the sum is zero
    already.
    """
    return denominator + (denominator == 0)
