"""Chainer's own optimizers over replicated networks, under the names of delira."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike.backends.chainer import unstable
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.errors import OptimizerError, ShapeError
from deliralike.optim.loss import Loss


class ParallelOptimizerCumulateGradientsHook:
    """Optimizer hook: adds the replicas' gradients to the root's before the update.

    The replicas' gradients are cleared. For any Chainer optimizer whose target is a replicated
    network or holds some. Add it before other hooks, so that these see the accumulated gradients.

    Better than in delira: losses that are means inside the replicas are weighted by share (see
    `in_replicas`), a parameter without a gradient in some replica is no error, and a gradient that
    is not finite in any replica is noticed by Chainer's dynamic loss scaling.
    """

    name = "DataParallelCumulateGradients"
    call_for_each_param = False
    timing = "pre"

    def __call__(self, optimizer: chainer.Optimizer) -> None:
        """Accumulate in the order of replicas."""
        networks = list(replicated_networks(optimizer.target))
        for network in networks:
            network.parallelism.accumulate_gradients()
        if networks and unstable.has_dynamic_loss_scale(optimizer):
            optimizer.check_nan_in_grads()


class ParallelOptimizerUpdateModelParameters:
    """Optimizer hook: copies the root's parameters to the replicas after the update.

    Better than in delira: the replicas' running statistics stay as the network's ``buffers`` policy
    has set them.
    """

    name = "DataParallelUpdateModelParams"
    call_for_each_param = False
    timing = "post"

    def __call__(self, optimizer: chainer.Optimizer) -> None:
        """Copy all parameters."""
        for network in replicated_networks(optimizer.target):
            network.copy_parameters()


class DataParallelChainerOptimizer(chainer.Optimizer):
    """A Chainer optimizer that keeps replicated networks in step.

    After `setup` the order is: accumulate the replicas' gradients, the user's hooks, the update,
    the user's hooks for afterwards, copy the parameters to the replicas. All attributes are those
    of the optimizer inside, for reading and for setting, so that Chainer's updaters, extensions and
    serializers work with it.

    Attributes:
        optimizer: The optimizer inside.

    Raises:
        OptimizerError: It is no Chainer optimizer.

    Better than in delira: `setup` returns the optimizer; ``lr``, ``t``, ``epoch``, ``hyperparam`` …
    are really those of the optimizer inside; it is a ``chainer.Optimizer``; `update` also takes a
    loss that the replicas compute.

    Example:
        >>> import chainer
        >>> net = DataParallelChainerNetwork(chainer.links.Linear(3, 2), ["@numpy", "@numpy"])
        >>> optimizer = DataParallelChainerOptimizer(chainer.optimizers.SGD(lr=0.1)).setup(net)
        >>> optimizer.lr = 0.01
        >>> optimizer.optimizer.lr, optimizer.target is net
        (0.01, True)
    """

    optimizer: chainer.Optimizer

    def __init__(self, optimizer: chainer.Optimizer) -> None:
        """Wrap an optimizer, which does not change."""
        if not isinstance(optimizer, chainer.Optimizer):
            raise OptimizerError(
                "DataParallelChainerOptimizer wraps an optimizer such as "
                f"chainer.optimizers.SGD(), not {optimizer!r}: from_optimizer_class makes one from "
                "its class"
            )
        object.__setattr__(self, "optimizer", optimizer)

    @property
    def _optimizer(self) -> chainer.Optimizer:
        """The optimizer inside, under the name that it has in delira."""
        return self.optimizer

    @classmethod
    def from_optimizer_class(
        cls, optim_cls: type, *args: Any, **kwargs: Any
    ) -> DataParallelChainerOptimizer:
        """Make the optimizer inside from its class and arguments.

        Raises:
            OptimizerError: `optim_cls` is None or no class of Chainer's optimizers.
        """
        if not (
            isinstance(optim_cls, type) and issubclass(optim_cls, chainer.Optimizer)
        ):
            raise OptimizerError(
                f"from_optimizer_class: optim_cls={optim_cls!r} is no class of optimizers, wanted "
                "one such as chainer.optimizers.Adam; its arguments follow it"
            )
        return cls(optim_cls(*args, **kwargs))

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute of this class, or else of the optimizer inside."""
        if name in _OWN or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "optimizer"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the optimizer inside."""
        setattr(self.optimizer, name, value)

    def setup(self, link: chainer.Link) -> DataParallelChainerOptimizer:
        """Set the optimizer inside up for a network that is or holds a replicated one.

        Returns:
            This optimizer.
        """
        self.optimizer.setup(link)
        self.optimizer.add_hook(ParallelOptimizerCumulateGradientsHook())
        self.optimizer.add_hook(ParallelOptimizerUpdateModelParameters())
        return self

    def add_hook(
        self, hook: Callable[..., Any], name: str | None = None, timing: str = "auto"
    ) -> None:
        """Add a hook.

        A hook before the update sees accumulated gradients; one after it runs before the copy.
        """
        self.optimizer.add_hook(hook, name, timing)
        post_update_hooks = unstable.post_update_hooks(self.optimizer)
        if ParallelOptimizerUpdateModelParameters.name in post_update_hooks:
            post_update_hooks.move_to_end(ParallelOptimizerUpdateModelParameters.name)

    def update(
        self, lossfun: Callable[..., Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Make one step: on ``lossfun(*args)``, or on present gradients.

        Args:
            lossfun: As for any Chainer optimizer, or a loss from `in_replicas`, which is computed
                in the replicas.

        Raises:
            ShapeError: The loss is no scalar, for example because each replica has computed its
                own.
        """
        if isinstance(lossfun, Loss):
            self.optimizer.target.cleargrads()
            self._backward_in_replicas(lossfun, *args)
            lossfun = None
        elif lossfun is not None:
            lossfun = _Scalar(lossfun)
        if lossfun is None:
            self.optimizer.update()
        else:
            self.optimizer.update(lossfun, *args, **kwargs)

    def _backward_in_replicas(self, loss: Loss, *batch: Any) -> None:
        def backward(value: Any) -> None:
            value.backward(loss_scale=unstable.loss_scale(self.optimizer))

        target = self.optimizer.target
        if isinstance(target, DataParallelChainerNetwork):
            loss.forward_backward(target, backward, *batch)
        else:
            backward(loss.whole(target, *batch))


_OWN = frozenset([*vars(DataParallelChainerOptimizer), "optimizer"])


class _Scalar:
    """A loss function whose result must be one number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        loss = self.function(*args, **kwargs)
        if loss.size != 1:
            raise ShapeError(
                f"a loss is one number, this one has shape {loss.shape}: where each replica "
                "computes a loss, say how they become one, with DataParallelChainerNetwork(..., "
                "scalars='mean') or with in_replicas"
            )
        return loss
