"""A class of one framework becomes the same network written once."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance import Proof, compare, distance_loss
from deliralike.conformance.probing import distance_loss_by_name
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError, SettingError
from deliralike.network.base import Network
from deliralike.port.chainer_objects import Chainer
from deliralike.port.creation import (
    Arguments,
    Creation,
    call,
    mapped,
    new_network,
    with_weights,
)
from deliralike.port.framework import Framework
from deliralike.port.observing import CONSTRUCTION, FORWARD, Observation
from deliralike.port.original import Original
from deliralike.port.program import Program
from deliralike.port.remarks import Remark
from deliralike.port.resolving import module_source
from deliralike.port.torch_modules import PyTorch

FRAMEWORKS = (PyTorch(), Chainer())
_numbers = itertools.count()


@dataclass
class Port:
    """A network written once, made from a class of a framework.

    Attributes:
        source: The source, one file.
        class_name: The name of the network's class in it.
        reference: The original network.
        inputs: What it was called with.
        arguments: What the class was created with, by position and by name.
        hands: What a person has to write, by line of the original.
        left_out: Lines of the original that are not in the port, and why.
        changes: For each definition its name, its lines, and how many of them are other ones.
    """

    source: str
    class_name: str
    reference: Any
    inputs: Any
    arguments: Arguments
    hands: list[Remark]
    left_out: list[Remark]
    changes: list[tuple[str, int, int]]
    _program: Program = field(repr=False)
    _create: Creation = field(repr=False)
    _remembers: bool = field(repr=False)
    _module: Any = field(default=None, repr=False)

    @property
    def module(self) -> Any:
        """The source, run as a module."""
        if self._module is None:
            name = f"deliralike_port_{next(_numbers)}"
            module = sys.modules[name] = types.ModuleType(name)
            exec(
                compile(self.source, f"<port of {self.class_name}>", "exec"),
                vars(module),
            )
            self._module = module
        return self._module

    def network(
        self, backend: str, *, seed: int = 0, dtype: str = "float32", device: Any = None
    ) -> Any:
        """Return the network on a backend, with the weights of the original.

        Args:
            backend: The name of the backend.
            seed: Of the start values of what the original's weights do not give: nothing.
            dtype: The type of its parameters.
            device: One of ``backends.get(backend).devices()``; its first when not given.

        Raises:
            BackendUnavailable: There is no such backend, or it is not installed.
            StateError: The original's weights do not fit, as where buffers are not saved.
        """
        target = backends.get(backend)

        def created(cls: type, arguments: Arguments) -> Any:
            """A network of the port or of `nn`, in whose arguments these stand, too."""
            args, kwargs = mapped(arguments, self._program.framework, translated)
            create = self._counterpart(cls, target.nn)
            if getattr(create, "backend", None) is None:  # of the port, not of `nn`
                create = create.on(target, seed=seed, dtype=dtype, device=device)
            return create(*args, **kwargs)

        def translated(value: Any) -> Any:
            if self._program.framework.is_network_class(type(value)):
                return created(type(value), self._program.original.arguments_of(value))
            return self._counterpart(value, target.nn)

        try:
            network = created(type(self.reference), self.arguments)
        except Exception as error:
            if not self.hands:
                raise
            lines = "\n".join(map(str, self.hands))
            raise SettingError(
                f"port: the port of {self.class_name} cannot be created ({error}) before these "
                f"lines have been written:\n{lines}"
            ) from error
        network.load_neutral_state(backends.wrap(self.reference).neutral_state())
        return network

    def _counterpart(self, value: Any, nn: Any) -> Any:
        """The class or function of the port, or of `nn`, for one of the original."""
        where = (value.__module__, value.__qualname__)
        if where in self._program.names:
            called = self._program.names[where]
            found = getattr(self.module, called)
            if called in self._program.needing:
                return partial(found, nn)
            return found
        name = self._program.framework.name_of(value)
        return value if name is None else getattr(nn, name, value)

    def prove(
        self, backend: str, levels: Sequence[str] = ("L0", "L1", "L3", "L7")
    ) -> Proof:
        """Compare the port on a backend with the original, on its inputs, in float64.

        Names, outputs, the gradients of all parameters and of the inputs, and running statistics
        are compared, in training and in evaluation; then another size of input, in evaluation,
        where the network takes one. A network that remembers its state between calls is compared
        over two calls, the first of which begins without a state.

        Args:
            backend: The name of the backend.
            levels: Which levels of `deliralike.conformance.compare`.
        """
        loss: Any = distance_loss
        inputs = self.inputs
        if isinstance(inputs, dict):
            loss, inputs = distance_loss_by_name, (inputs,)
        network = self.network(backend)
        if self._remembers:
            network.__class__ = _called_twice(type(network))
        candidate = Subject(network, loss, keeps_layout=True)
        backend_of_reference: Any = backends.of(self.reference)
        with backend_of_reference.in_float64():  # also of the tables that it computes
            reference = with_weights(self._create(), self.reference, self.inputs)
            if self._remembers:
                reference.__class__ = _called_twice(type(reference))
            backend_of_reference.set_dtype(reference, "float64")
            return compare(
                reference,
                candidate,
                inputs,
                loss=loss,
                weights="load",
                levels=levels,
            )


def _called_twice(cls: type) -> type:
    """A class of networks that remember: its calls are two, of which the first has no state."""
    name = "forward" if issubclass(cls, Network) else "__call__"

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.reset_state()
        call_once = getattr(super(twice, self), name)
        call_once(*args, **kwargs)
        return call_once(*args, **kwargs)

    twice = type(cls.__name__, (cls,), {name: forward})
    return twice


def port(network: Any, inputs: Any, *args: Any, **kwargs: Any) -> Port:
    """Rewrite a class of PyTorch or Chainer as the same network written once.

    The class runs twice, to see what it calls and which values are arrays. What is neither the
    framework's nor Python's comes along: its blocks, helper functions, constants, also from other
    files and installed packages.

    Args:
        network: A class of ``torch.nn.Module`` or ``chainer.Chain``, a function that creates such
            a network, or a network, which gives its weights.
        inputs: What the network is called with, an array of NumPy or of PyTorch, samples first; a
            tuple of several, a dict where they are given by name.
        args, kwargs: Arguments of the class or function. Those of a network that exists are its
            attributes of the same names, else the defaults, where none are given.

    Raises:
        SettingError: It makes no network, has no source, or exists already and was created with
            other arguments than these, or with some that are not known.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> port(nn.Linear, (np.ones((2, 3), np.float32),), 3, 4)
        Traceback (most recent call last):
        deliralike.errors.SettingError: port: Linear is PyTorch's own: self.nn.Linear
    """
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)
    else:
        inputs = (inputs,) if hasattr(inputs, "shape") else tuple(inputs)
    framework = _framework_of(network, args, kwargs)
    create = Creation(network, inputs, (args, kwargs), framework)
    observation = Observation(framework)
    with observation.calls(CONSTRUCTION):
        reference: Any = create()
    given = backends.of(reference).prepare(inputs, backends.wrap(reference))
    with observation.calls(FORWARD):
        _run(reference, given)
    with observation.values():
        _run(create(), given)
    original = Original(framework, observation, framework.blocks(reference))
    program = Program(original)
    remembers = _remembers(reference, given)
    if remembers and not hasattr(reference, "reset_state"):
        program.needs_hand(
            program.where(type(reference)),
            "it remembers something between calls: keep that in an nn.State, which a compiled "
            "program hands on, and write a method reset_state; links have one, for it to call",
        )
    observation.created.setdefault(id(reference), create.arguments[1])
    name = program.need(type(reference))
    arguments = original.arguments_of(reference)
    _need_all(program, arguments)
    source = program.text(
        f"{name}, written once: a port of {type(reference).__module__}."
    )
    return Port(
        source,
        name,
        network if create.exists else reference,
        inputs,
        arguments,
        program.hands,
        program.left_out,
        program.changes(),
        program,
        create,
        remembers,
    )


def _framework_of(
    network: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Framework:
    """The framework whose network it is."""
    if inspect.isfunction(network):
        network = new_network(network, args, kwargs)
    cls = network if inspect.isclass(network) else type(network)
    framework = framework_of_class(cls)
    if framework is None:
        titles = " or ".join(each.title for each in FRAMEWORKS)
        raise SettingError(f"port: {cls.__name__} is no network of {titles}")
    _check(cls, framework)
    return framework


def framework_of_class(cls: Any) -> Framework | None:
    """The framework whose class of networks it is, or None."""
    for framework in FRAMEWORKS:
        if framework.is_network_class(cls):
            return framework
    return None


def _check(cls: type, framework: Framework) -> None:
    module = cls.__module__
    if framework.owns(module):
        raise SettingError(
            f"port: {cls.__name__} is {framework.title}'s own: self.nn.{cls.__name__}"
        )
    if cls.__qualname__.partition(".")[0] not in vars(sys.modules.get(module, object)):
        raise SettingError(
            f"port: {cls.__name__} cannot be found in the module {module!r}, where its source "
            f"would be read: import its file, or set sys.modules[{module!r}] before it is run"
        )
    if not framework.ports(module):
        raise SettingError(
            f"port: the file of {cls.__name__} has the name of one of Python's modules, "
            f"{module!r}: give it another"
        )


def _run(network: Any, inputs: Any) -> None:
    """Call a network in both modes; its running statistics stay as they are."""
    wrapped: Any = backends.wrap(network)
    if hasattr(network, "reset_state"):
        network.reset_state()
    with wrapped.training_mode(False):
        try:
            call(wrapped, inputs)
        except DeliralikeError:
            raise
        except Exception as error:
            came = nest.map(lambda each: tuple(np.shape(each)), inputs)
            raise SettingError(
                f"port: {type(network).__name__} cannot be called with inputs of the shapes "
                f"{came}: {type(error).__name__}: {error}"
            ) from error
    state = wrapped.neutral_state()
    # Batch normalisation of one value has no training mode.
    with wrapped.training_mode(True), suppress(ValueError):
        call(wrapped, inputs)
    wrapped.load_neutral_state(state)
    wrapped.eval()


def _remembers(network: Any, inputs: Any) -> bool:
    """Whether a second call gives other outputs than the first, in training or in evaluation.

    Inputs, weights, buffers and random numbers are equal.
    """
    wrapped: Any = backends.wrap(network)
    backend = wrapped.backend
    state = wrapped.neutral_state()

    def outputs(training: bool) -> list[bytes]:
        with backend.preserve_global_state(), wrapped.training_mode(training):
            found = nest.leaves(backend.to_numpy(call(wrapped, inputs)))
        wrapped.load_neutral_state(state)
        return [np.asarray(leaf).tobytes() for leaf in found]

    if outputs(False) != outputs(False):
        return True
    with suppress(ValueError):  # of batch normalisation, see `_run`
        return outputs(True) != outputs(True)
    return False


def _need_all(program: Program, arguments: Arguments) -> None:
    """Port the classes and functions among arguments.

    Configurations of an installed package stay what they are, where its code does not name them.
    """

    def needed(value: Any) -> Any:
        is_network = program.framework.is_network_class(value)
        if program.framework.is_network_class(type(value)):
            needed(type(value))
            _need_all(program, program.original.arguments_of(value))
        elif program.framework.ports(value.__module__):
            is_installed = module_source(value.__module__).is_installed
            if is_network or not (inspect.isclass(value) and is_installed):
                program.need(value)
        return value

    mapped(arguments, program.framework, needed)


def save(found: Port, path: Path) -> None:
    """Write the source, with a comment for each line that needs a hand.

    Raises:
        SettingError: There is another file, perhaps the original, or a port that was edited.
    """
    head = "".join(f"# By hand: {remark}\n" for remark in found.hands)
    text = (head + found.source).encode()
    if path.exists() and path.read_bytes() != text:
        raise SettingError(
            f"port: there is another {str(path)!r}, which is left as it is: say which file to "
            "write, --out FILE, or remove it"
        )
    path.write_bytes(text)
