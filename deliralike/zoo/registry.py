"""Architectures by name, and how one becomes a network on a backend.

Ours stand in a table (`deliralike.zoo.table`); the family of one is imported when somebody asks for
it, and registers it.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import network, own_code
from deliralike.errors import ArgumentError, SettingError, UnknownName, suggestion
from deliralike.setting_types import refuse_other_types
from deliralike.zoo import table
from deliralike.zoo.inputs import Input, Inputs, Shape, inputs

if TYPE_CHECKING:
    from deliralike.network.interface import Networks

# What reference implementations call the number of outputs.
OUTPUT_WORDS = (
    "num_classes",
    "classes",
    "n_classes",
    "num_labels",
    "out_channels",
    "out_features",
)


@dataclass(frozen=True)
class Architecture:
    """One entry of the zoo: a network with the settings that make it this variant.

    Attributes:
        name: The name by which `find` and `build` know it.
        network: The network written once, or a function that creates one and returns it.
        variant: The settings in which this entry differs from the network's own defaults.
        task: ``"classification"``, ``"segmentation"`` …
        dims: The numbers of spatial axes that it can have; ``(0,)`` for plain vectors.
        source: Paper, and the reference implementation whose names and counts are followed.
        shape: One sample's shape ``(channels, *size)``, or an `Input`, or a list of both for
            several inputs; or a function that gives this for a table of all settings.
        parameters: The published number of parameters for the default settings, where there is one.

    Example:
        >>> find("resnet18").parameters
        11689512
        >>> find("resnet18").settings["num_classes"]
        1000
    """

    name: str
    network: Callable[..., Any]
    variant: Mapping[str, Any] = field(default_factory=dict)
    task: str = "classification"
    dims: tuple[int, ...] = (2,)
    source: str = ""
    shape: Inputs | Callable[[Mapping[str, Any]], Inputs] | None = None
    parameters: int | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every setting that has a default, with the value of this variant."""
        defaults = {}
        for name, parameter in parameters_of(self.network).items():
            if parameter.default is not inspect.Parameter.empty:
                defaults[name] = parameter.default
        return MappingProxyType(defaults | dict(self.variant))

    @property
    def input_shape(self) -> Shape | None:
        """The shape of one sample (without the batch) for the default settings.

        It is that of the first input where there are several; None when the architecture does not
        state it.
        """
        if self.shape is None:
            return None
        return self.inputs_for()[0].shape

    def inputs_for(self, **settings: Any) -> tuple[Input, ...]:
        """Return every input of one sample.

        Raises:
            ArgumentError: The architecture does not state its inputs.

        Example:
            >>> find("resnet18").inputs_for(in_channels=1, dims=3)[0].shape
            (1, 224, 224, 224)
        """
        if self.shape is None:
            raise ArgumentError(
                f"{self.name} does not state the shape of its input: give it, "
                "outline(..., input_shape=(3, 64, 64)) or --input 3x64x64"
            )
        if not callable(self.shape):
            return inputs(self.shape)
        arguments = self.arguments(**settings)
        return inputs(self.shape(self.settings | arguments))

    def sample(
        self, batch: int = 1, *, seed: int = 0, dtype: str = "float32", **settings: Any
    ) -> tuple[Any, ...]:
        """Draw a batch of random inputs of the right shapes and kinds, as NumPy arrays.

        Example:
            >>> [array.shape for array in find("lenet").sample(batch=2)]
            [(2, 1, 28, 28)]
        """
        generator = np.random.default_rng(seed)
        entries = self.inputs_for(**settings)
        return tuple(entry.draw(generator, batch, dtype) for entry in entries)

    @property
    def words(self) -> Sequence[str]:
        """The names of all settings, also of those without a default."""
        return tuple(parameters_of(self.network))

    @property
    def outputs(self) -> str | None:
        """The setting that holds the number of outputs; None if there is no such setting."""
        parameters = parameters_of(self.network)
        for word in (getattr(self.network, "outputs", None), *OUTPUT_WORDS):
            if word in parameters:
                return word
        return None

    def rename_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with the number of outputs under this architecture's own name for it.

        Every architecture takes it as ``num_classes``, and as any other of `OUTPUT_WORDS` that is
        no setting of its own.

        Raises:
            ArgumentError: It came under two names.

        Example:
            >>> find("unet").rename_settings({"num_classes": 3})
            {'out_channels': 3}
        """
        own = self.outputs
        if own is None:
            return dict(settings)
        parameters = parameters_of(self.network)
        renamed: dict[str, Any] = {}
        came: dict[str, str] = {}  # the name that a setting came under
        for name, value in settings.items():
            is_other_word = name in OUTPUT_WORDS and name not in parameters
            word = own if is_other_word else name
            if word in renamed:
                raise ArgumentError(
                    f"{self.name}: the number of outputs came twice, as {came[word]!r} and as "
                    f"{name!r}: say num_classes alone"
                )
            renamed[word] = value
            came[word] = name
        return renamed

    def apart(self, settings: Mapping[str, Any]) -> tuple[Architecture, dict[str, Any]]:
        """Return the architecture, and the settings without what says how it is called: all."""
        return self, dict(settings)

    def arguments(self, **settings: Any) -> dict[str, Any]:
        """Return the arguments that the network is created with.

        They are the variant's, overridden by the given ones.

        Raises:
            ArgumentError: There is no such setting, or the number of outputs came under two names.
            SettingError: A setting of ours has another type than the network's argument, or a
                number is below 0 where the default is not.
        """
        settings = self.rename_settings(settings)
        allowed = []
        open_ended = False
        for name, parameter in parameters_of(self.network).items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                open_ended = True
            else:
                allowed.append(name)
        for name in settings:
            if name in OUTPUT_WORDS and self.outputs is None and not open_ended:
                raise ArgumentError(
                    f"{self.name} has no setting {name!r}, nor another one for the number of its "
                    "outputs"
                )
            if name not in allowed and not open_ended:
                raise ArgumentError(
                    f"{self.name} has no setting {name!r}. {suggestion(name, self._words(allowed))}"
                )
        self._refuse_negative(settings)
        if self.name in table.rows():
            refuse_other_types(self.name, self.network, settings)
            self._refuse_other_dims(settings)
        return dict(self.variant) | settings

    def _refuse_other_dims(self, arguments: Mapping[str, Any]) -> None:
        """Raise an error for a number of spatial axes that the network cannot have."""
        dims = arguments.get("dims")
        if dims is not None and dims not in self.dims:
            wanted = ", ".join(map(str, self.dims))
            raise SettingError(f"{self.name}: dims={dims!r}; wanted {wanted}")

    def _refuse_negative(self, arguments: Mapping[str, Any]) -> None:
        """Raise an error for a number below 0, or NaN, where the default is not."""
        defaults = self.settings
        for name, value in arguments.items():
            default = defaults.get(name)
            are_numbers = _is_number(value) and _is_number(default)
            if are_numbers and default >= 0 and not value >= 0:
                raise SettingError(
                    f"{self.name}: {name}={value!r} must be at least 0; left out it is {default!r}"
                )

    def _words(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of settings, with the word that every architecture takes."""
        if self.outputs is None or "num_classes" in names:
            return names
        return [*names, "num_classes"]

    def on(
        self,
        backend: str | Networks[Any],
        *,
        seed: int = 0,
        dtype: str = "float32",
        device: Any = None,
    ) -> Callable[..., Any]:
        """Return a function that creates this architecture on a backend.

        The function takes settings that override the variant's.

        Args:
            backend: The name of a backend, or the backend itself.
            seed, dtype, device: See `deliralike.Network.on`.

        Raises:
            BackendUnavailable: The backend is unknown, not installed or broken.

        Example:
            >>> find("mlp").on("torch", dtype="float64")(hidden=(5,)).count_parameters()
            3985
        """
        return partial(
            self._build, _backend(backend), seed=seed, dtype=dtype, device=device
        )

    def _build(
        self,
        backend: Networks[Any],
        /,
        *,
        seed: int,
        dtype: str,
        device: Any,
        **settings: Any,
    ) -> Any:
        arguments = self.arguments(**settings)
        create = _on(self.network, backend)
        return network.build(create, seed=seed, dtype=dtype, device=device, **arguments)


def find(name: str) -> Architecture:
    """Return the architecture of that name.

    Args:
        name: One of `list`, or a class or function of your own: ``"package.module:Name"`` or
            ``"path/to/file.py:Name"``. It may be written once, or native to one backend.

    Raises:
        UnknownName: There is no such architecture; the message names the nearest.
        SettingError: There is no such module, file or class.

    Example:
        >>> find("resnet81")
        Traceback (most recent call last):
        ...
        deliralike.errors.UnknownName: the zoo has no 'resnet81'. Did you mean 'resnet8' or
        'resnet18'?
    """
    if own_code.is_name(name):
        return _user_model(name)
    _import_family(name)
    if name not in _architectures:
        raise UnknownName(f"the zoo has no {name!r}. {suggestion(name, _listed())}")
    return _architectures[name]


def _user_model(name: str) -> Architecture:
    # on demand: the module is made of this one
    user_models = importlib.import_module("deliralike.zoo.user_models")
    return user_models.architecture(name)


def list(
    pattern: str = "*", *, task: str | None = None, dims: int | None = None
) -> tuple[str, ...]:
    """Return the names of the architectures that match: ours, then those registered by others.

    No family is imported.

    Args:
        pattern: A name with ``*`` and ``?``.
        task: Only those for this task.
        dims: Only those that can have so many spatial axes.

    Raises:
        UnknownName: No architecture at all has such a task.

    Example:
        >>> list("wide_*", dims=3)
        ('wide_resnet50_2', 'wide_resnet101_2')
    """
    listed = _listed()
    tasks = {entry.task for entry in listed.values()}
    if task is not None and task not in tasks:
        raise UnknownName(f"the zoo has no task {task!r}. {suggestion(task, tasks)}")
    names = []
    for name, entry in listed.items():
        right_task = task in (None, entry.task)
        right_dims = dims is None or dims in entry.dims
        if right_task and right_dims and fnmatch.fnmatchcase(name, pattern):
            names.append(name)
    return tuple(names)


def register(
    network: Any = None, *, name: str | None = None, **description: Any
) -> Any:
    """Add an architecture: a network written once, or a function that creates one.

    Also a decorator.

    Args:
        network: The class or function; its defaults are the architecture's settings.
        name: The name of the architecture; that of the class or function when not given.
        description: ``variant``, ``task``, ``dims``, ``source``, ``shape``, ``parameters``; see
            `Architecture`.

    Returns:
        The class or function as it came.

    Raises:
        ArgumentError: The description has no such entry.
        SettingError: Another network has that name. One that is defined anew (a notebook's cell)
            takes its own place.

    Example:
        >>> @register(dims=(2,), shape=(1, 28, 28))
        ... def tiny_lenet(num_classes=2):
        ...     return find("lenet").network(num_classes=num_classes)
        >>> find("tiny_lenet").task
        'classification'
        >>> del _architectures["tiny_lenet"]
    """
    if network is None:
        return partial(register, name=name, **description)
    known = inspect.signature(Architecture).parameters.keys() - {"name", "network"}
    for entry in description:
        if entry not in known:
            raise ArgumentError(
                f"register has no entry {entry!r}. {suggestion(entry, known)}"
            )
    architecture = Architecture(name or network.__name__, network, **description)
    _refuse_another(architecture)
    _refuse_unknown_settings(architecture)
    _architectures[architecture.name] = architecture
    return network


def register_each(
    network: Any,
    variants: Mapping[str, tuple[Mapping[str, Any], int | None]],
    **description: Any,
) -> None:
    """Add the variants of a family: for each name the settings and the published count."""
    for name, (variant, parameters) in variants.items():
        register(
            network, name=name, variant=variant, parameters=parameters, **description
        )


def by_column(
    columns: Sequence[str], rows: Mapping[str, Sequence[Any]], **constants: Any
) -> dict[str, tuple[dict[str, Any], int | None]]:
    """Return variants for `register_each` from a table of settings, whose last column is counts.

    Args:
        columns: The names of the settings.
        constants: Settings that all of them have.

    Example:
        >>> by_column(["depth"], {"small": (2, 10)}, width=8)
        {'small': ({'depth': 2, 'width': 8}, 10)}
    """
    variants = {}
    for name, (*values, parameters) in rows.items():
        settings = dict(zip(columns, values, strict=True)) | constants
        variants[name] = (settings, parameters)
    return variants


def _listed() -> dict[str, table.Row | Architecture]:
    """Return what is known of each architecture without importing its family."""
    return {**table.rows(), **_architectures}


def _import_family(name: str) -> None:
    """Import the module that registers one of our architectures; other names are left alone."""
    row = table.rows().get(name)
    if row is not None:
        importlib.import_module(row.module)


def _refuse_another(new: Architecture) -> None:
    _import_family(new.name)
    old = _architectures.get(new.name)
    if old is not None and _origin(old.network) != _origin(new.network):
        raise SettingError(
            f"the zoo has {new.name!r} already, {'.'.join(_origin(old.network))}: register yours "
            "with another name=..."
        )


def _refuse_unknown_settings(architecture: Architecture) -> None:
    architecture.arguments(**architecture.variant)


def _origin(network: Callable[..., Any]) -> tuple[str, str]:
    return network.__module__, network.__qualname__


def parameters_of(network: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class or function, without ``self``."""
    if not isinstance(network, type):
        return dict(inspect.signature(network).parameters)
    parameters = dict(inspect.signature(network.__init__).parameters)  # type: ignore[misc]
    del parameters[next(iter(parameters))]
    return parameters


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class _BoundFunction:
    """A function that creates a network, with the backend that holds while it runs."""

    function: Callable[..., Any]
    backend: Any

    def __call__(self, **settings: Any) -> Any:
        return self.function(**settings)


def _on(network: Any, backend: Networks[Any]) -> Callable[..., Any]:
    if hasattr(network, "on"):
        return network.on(backend)
    return _BoundFunction(network, backend)


def _backend(backend: str | Networks[Any]) -> Networks[Any]:
    """Return a backend by name; it is loaded on demand, since the zoo itself knows none."""
    if isinstance(backend, str):
        return importlib.import_module("deliralike.backends").get(backend)
    return backend


_architectures: dict[str, Architecture] = {}
