"""The interface of a backend's networks and optimizers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from deliralike.errors import CapabilityError, SettingError, StateError
from deliralike.nest.arrays import Arrays
from deliralike.network.calls import Interceptor, intercept_calls
from deliralike.network.core import NetworkCore
from deliralike.optim.groups import Settings
from deliralike.optim.loss import LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Rule

N = TypeVar("N", bound=NetworkCore)
NeutralLayer = tuple[
    str, dict[str, Any]
]  # a layer of `nn` by its name, and its settings
LossCompiler = Callable[[LossFunction], LossFunction]


@dataclass(frozen=True)
class Gradients:
    """A loss and its gradients, as NumPy arrays in neutral names and layouts.

    Attributes:
        loss: The value of the function.
        parameters: One array for each trainable parameter, under each of its names where it is
            tied; None where the loss does not depend on it.
        inputs: The gradient with respect to each input: a nest like it, None at leaves that are not
            floating arrays.
        beside: The results of the function after the loss, where it returned a tuple; arrays as
            NumPy ones.
    """

    loss: float
    parameters: dict[str, np.ndarray | None]
    inputs: tuple[Any, ...]
    beside: tuple[Any, ...] = ()


class Networks(Arrays, Generic[N]):
    """The networks and optimizers of one framework.

    Attributes:
        nn: The vocabulary: functions, and layers bound to this backend.
        network_base: The native class that networks written once are bound to.
        optimizers_hold_state: Whether the framework's own optimizers hold their state and may be
            wrapped twice.
    """

    nn: Any
    network_base: type[N]
    optimizers_hold_state: ClassVar[bool] = True

    # Networks
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def is_native(self, value: Any) -> bool:
        """Return whether a value is a network or layer of the framework."""

    def is_parameter(self, value: Any) -> bool:
        """Return whether a value is a parameter of the framework."""
        return False

    def how_to_bind(self, value: Any) -> str:
        """Return how a layer of the framework that holds no parameters by itself gets them.

        The text is empty for anything else.
        """
        return ""

    def constructor_arguments(self, seed: int) -> dict[str, Any]:
        """Return what networks of the framework take in ``__init__`` by its conventions, by name.

        Args:
            seed: The seed of start values.
        """
        return {}

    def wrappers(self) -> tuple[type, ...]:
        """Return the framework's own classes of networks that only wrap another network.

        They wrap it over devices or processes.
        """
        return ()

    @abstractmethod
    def wrap(self, native: Any) -> N:
        """Wrap a native network as an abstract one.

        It has the same weights, under the same names, without a prefix.
        """

    @abstractmethod
    def gradients(
        self, loss_function: Callable[..., Any], network: N, *inputs: Any
    ) -> Gradients:
        """Return the loss ``loss_function(network, *inputs)`` and its gradients.

        Running statistics move, weights do not.

        A backend that compiles programs traces the function at each call, so that whatever it reads
        is as it is then, and compiles what came out unless an equal program is kept, quickly; see
        `compiling_quickly`.
        """

    def program(self, function: Callable[..., Any], network: N) -> Callable[..., Any]:
        """Return ``function(network, ...)`` as a function of its other arguments.

        A backend that compiles programs compiles it, once for the shapes of the arrays that come;
        those may stand in nests. A function that changes the network, or whose course depends on
        the values of arrays, is called as it is. Weights and settings are those at each call.

        Args:
            function: A function that is defined once, at the top of a module: programs are kept by
                it.
        """
        return partial(function, network)

    def recomputed(
        self,
        block: Any,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return ``call(block, *args, **kwargs)``, of which no activation is kept for gradients.

        They are computed again backwards; buffers of the block do not change a second time. In
        evaluation mode it may be a plain call.

        Raises:
            CapabilityError: The backend does not declare ``"checkpointed blocks"``.
        """
        self.require("checkpointed blocks")

    def in_dtype(self, network: N, dtype: str) -> N:
        """Return a copy of a network that computes in another floating type.

        The copy shares nothing with the network.

        Raises:
            DtypeError: The backend cannot compute in that type.
            StateError: The network holds something that cannot be copied.
        """
        name = self.check_dtype(dtype)
        try:
            twin = deepcopy(network)
        except Exception as error:  # a network may hold anything
            raise StateError(
                f"{type(network).__name__} cannot be copied: {error}"
            ) from error
        self.set_dtype(twin, name)
        for _, block in twin.named_blocks():
            if isinstance(block, NetworkCore):
                block.dtype_built = name
        return twin

    def set_dtype(self, network: N, dtype: str) -> None:
        """Convert the floating parameters and buffers of a network to a type.

        The type is a name that `check_dtype` returned.

        Raises:
            CapabilityError: The backend cannot change the type of a network.
        """
        raise CapabilityError(
            f"backend {self.name!r} cannot change the type of a network: build it in {dtype}"
        )

    def intercept_calls(
        self, network: N, interceptor: Interceptor
    ) -> AbstractContextManager[None]:
        """Return a context in which another function calls each block of a network.

        A block may be written once or native.

        Within a loss function that `gradients` calls, follow the network that is its argument.

        Args:
            interceptor: Called with the block's dotted path, the block, the call that it makes, and
                the call's arguments; what it returns takes the place of the block's output.
        """
        # Where a path has two blocks, the native network's own comes last.
        blocks = dict(network.named_blocks())
        return intercept_calls(blocks, interceptor, self.calls_forward)

    def same_trace_only(self, interceptor: Interceptor) -> Interceptor:
        """Return a function for `intercept_calls` that leaves calls alone which are traced apart.

        Arrays of a loop or of another program within the network have no values outside of it.
        """
        return interceptor

    def intercept_native_functions(
        self, network: N, interceptor: Callable[..., Any]
    ) -> AbstractContextManager[None]:
        """Return a context in which another function calls each known native function.

        Calls within such a call, or of other threads, are made as they are. Where functions cannot
        be followed within a part of a program, such as one that is traced apart, they are not.

        A backend that has no such hook follows none.

        Args:
            network: Whose code calls them. Within a loss function that `gradients` calls, it is the
                network that is its argument.
            interceptor: ``interceptor(name, call, args, kwargs)`` gets the name of the function of
                `nn` that equals the native one, a call of the native one that takes that function's
                arguments and gives its result, in the layouts of `nn` (pictures with channels
                second), and all arguments by position. A function that `nn` does not have comes by
                its own name, with its arrays alone. What is returned takes the place of the result.
        """
        return nullcontext()

    def calls_forward(self, block: Any) -> bool:
        """Return whether a call of a block of the framework ends in its method ``forward``."""
        return hasattr(block, "forward")

    def neutral_layer(self, block: Any) -> NeutralLayer | None:
        """Return the layer of `nn` that equals a layer of the framework, and its settings there.

        None where no layer of `nn` does, or where its name and settings are the same.
        """
        return None

    def has_channels_last(self, block: Any) -> bool:
        """Return whether a layer of the framework takes its channels last; those of `nn` second."""
        return False

    # Optimizers
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def optimizer(
        self,
        rule: Rule,
        network: N,
        parameters: str | None = None,
        groups: Settings | None = None,
    ) -> AbstractOptimizer:
        """Return an optimizer that follows one of the neutral update rules.

        Args:
            parameters: A pattern of neutral names, such as ``"generator.*"``; all trainable
                parameters when None.
            groups: Settings that differ from the rule's, by patterns of neutral names of which the
                first that matches decides: ``{"*.bias": {"weight_decay": 0.0}, "encoder.*": {"lr":
                1e-4}}``. A learning rate of a group's own keeps its ratio to the rule's when
                ``optimizer.lr`` is set.

        Raises:
            UnknownName: A pattern matches no parameter.
            ArgumentError: The rule has no such setting.
            SettingError: A setting makes no sense, or a ratio to a learning rate of 0 is wanted.
        """

    def loss_compiler(
        self, network: N, settings: Mapping[str, Any]
    ) -> LossCompiler | None:
        """Return a function that compiles the loss functions of an optimizer over a network.

        None where the backend compiles each step anyway.

        Args:
            settings: Those of the framework's compiler.

        Raises:
            CapabilityError: The backend does not declare ``"compile"``.
            SettingError: It has no such setting, or cannot compile such a network.
        """
        self.require("compile")
        if settings:
            raise SettingError(
                f"backend {self.name!r} compiles each step by itself, without settings such as "
                f"{', '.join(settings)}: give compile=True, or leave it out"
            )
        return None

    @abstractmethod
    def wrap_optimizer(self, native: Any, network: N) -> AbstractOptimizer:
        """Wrap any optimizer of the framework as an abstract one.

        Raises:
            OptimizerError: It is no optimizer of the framework.
            ArgumentError: It has parameters, and none is the network's.
        """
