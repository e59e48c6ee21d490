"""The interface of every network, the base of networks written once, and how they are built.

`AbstractNetwork` is the interface. `Network` is the base of a network written once:
``Net.on("torch")`` is the same class as a native one. Both are built by `NetworkType`, which
records the arguments and sets the start values.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from deliralike.errors import ConstructionError, SettingError, UnboundNetwork
from deliralike.network import steps
from deliralike.network.anomalies import Anomalies
from deliralike.network.arguments import (
    Block,
    InitKwargs,
    arguments_record,
    bind_arguments,
    in_positions,
)
from deliralike.network.closure import closure, prepare_batch
from deliralike.network.construction import (
    Construction,
    constructing,
    current_construction,
)
from deliralike.network.copying import CopiedWithFunctions
from deliralike.network.core import NetworkCore
from deliralike.network.detection import detect_anomalous_params
from deliralike.network.interface import Networks
from deliralike.network.unregistered_modules import (
    refuse_plain_container,
    refuse_unregistered,
)
from deliralike.nn.start import Distribution, draw
from deliralike.setting_types import refuse_other_types

# A network written once is a native one of some framework, which no type checker can know: its
# other attributes are taken as they come, and it may be given where a native network is wanted.
if TYPE_CHECKING:
    from typing import Any as Native
else:
    Native = object

N = TypeVar("N", bound="Network")
BackendName = Literal["torch", "chainer", "jax"]

__all__ = [
    "AbstractNetwork",
    "BackendName",
    "Block",
    "InitKwargs",
    "Network",
    "NetworkType",
    "StateDictNames",
    "build",
    "finish",
    "refuse_plain_container",
]


class NetworkType(type):
    """NetworkType is the metaclass that builds networks.

    It checks and records the arguments, and gives the outermost network its start values.
    """

    backend: Networks[Any]
    on: Callable[..., Any]

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        """Build one network; blocks made on the way share its construction."""
        construction = current_construction()
        if not getattr(cls, "backend", None):
            if construction is None:
                raise UnboundNetwork(
                    f"{cls.__name__} is written once and was not given a backend: write "
                    f"{cls.__name__}.on('torch')(...), or create it inside the __init__ of another "
                    "network"
                )
            cls = cls.on(construction.backend)
        args = tuple(
            list(one) if isinstance(one, GeneratorType) else one for one in args
        )
        init_kwargs = bind_arguments(cls, args, kwargs)
        written_once = getattr(cls, "written_once", cls)
        if vars(written_once).get("_has_typed_settings"):  # a subclass may have others
            refuse_other_types(cls.__name__, written_once, init_kwargs)
        create = partial(cls._create, init_kwargs, args, kwargs)
        if construction is None:
            return _build_outermost(create, Construction(backend=cls.backend))
        if cls.backend is not construction.backend:
            raise ConstructionError(
                f"{cls.__name__} is a class of backend {cls.backend.name!r}, created within a "
                f"network of backend {construction.backend.name!r}: use the class as it is "
                "written, without .on(...)"
            )
        return create()

    def _create(cls, init_kwargs: InitKwargs, args: tuple, kwargs: dict) -> Any:
        if "cls" in kwargs:
            # flax's metaclass has an argument of that name, too: only a position tells them apart.
            args, kwargs = in_positions(cls, args, kwargs)
        network = super().__call__(*args, **kwargs)
        network.init_kwargs = InitKwargs(
            init_kwargs | vars(network).get("init_kwargs", {})
        )
        return network


class AbstractNetwork(NetworkCore, metaclass=NetworkType):
    """The interface of a network on any backend, written once or native.

    Attributes:
        backend: The backend that the class belongs to.
        nn: The vocabulary of that backend: layers and functions.
        init_kwargs: The arguments that this instance was made with; see `Block` for those that are
            networks. Keyword arguments of ``super().__init__(channels=channels)`` are recorded,
            too, and win.
        training: Whether the network is in training mode; see `training_mode`.
        block_path: The dotted path of this block within the outermost network; empty for the
            outermost itself.
        dtype_built: The floating type that the network was built with.
        start_values: Patterns of dotted names and the distributions to draw them from instead of
            the layers' own; the last pattern that matches wins. They hold for the network that
            declares them and all below it.
    """

    backend: ClassVar[Networks[AbstractNetwork]]
    start_values: ClassVar[Mapping[str, Distribution]] = {}
    # Whether this very class refuses settings of other types than its arguments state, as the
    # layers of `nn` do.
    _has_typed_settings: ClassVar[bool] = False
    # Methods of the framework's that only users call: a block may have their names.
    _may_be_hidden: ClassVar[frozenset[str]] = frozenset()
    written_once: ClassVar[Any]
    init_kwargs: InitKwargs
    block_path: str

    def _record(self, arguments: Mapping[str, Any]) -> None:
        """Record arguments that `__init__` passes to the backend's base.

        `init_kwargs` then holds them, too.
        """
        if arguments:
            self.init_kwargs = arguments_record(self, arguments)

    def _detach_computed_arrays(self, memo: dict[int, Any]) -> None:
        """Put into the memo of a copy what stands for arrays that forward has computed and kept."""

    closure = staticmethod(closure)

    @classmethod
    def prepare_batch(
        cls,
        batch: Mapping[str, Any],
        input_device: Any = None,
        output_device: Any = None,
        dtype: str = "float32",
    ) -> dict[str, Any]:
        """See `deliralike.network.closure.prepare_batch`."""
        return prepare_batch(cls.backend, batch, input_device, output_device, dtype)

    train_step = steps.train_step
    val_step = steps.val_step

    def test_step(
        self, batch: Any, losses: steps.Losses | None = None
    ) -> dict[str, Any]:
        """Return the losses of a batch for the final test, those of `val_step` by default."""
        if losses is None:
            return self.val_step(batch)
        return self.val_step(batch, losses)

    def detect_anomalous_params(
        self, loss_function: Callable[..., Any], *batch: Any
    ) -> Anomalies:
        """See `deliralike.network.detection.detect_anomalous_params`."""
        return detect_anomalous_params(self, loss_function, *batch)


class StateDictNames:
    """StateDictNames offers the neutral state by the names that PyTorch's users know.

    The bases of other backends' networks inherit it. On PyTorch these methods are PyTorch's own,
    and give the same names.
    """

    neutral_state: Callable[..., Any]
    load_neutral_state: Callable[..., Any]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights; see `AbstractNetwork.neutral_state`."""
        return self.neutral_state()

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Any:
        """Take over weights; see `AbstractNetwork.load_neutral_state`."""
        return self.load_neutral_state(state, strict)


class Network(CopiedWithFunctions, AbstractNetwork, Native):
    """The base of a network written once.

    Write ``__init__`` and ``forward`` with the layers and functions of `self.nn`; other networks
    written once may be created inside ``__init__`` as they are. ``Net.on(backend)`` is then a
    native class of that backend.

    Example:
        >>> class Classifier(Network):
        ...     def __init__(self, features, classes):
        ...         super().__init__()
        ...         self.fc = self.nn.Linear(features, classes)
        ...
        ...     def forward(self, x):
        ...         return self.nn.log_softmax(self.fc(x), dim=-1)
        >>> net = Classifier.on("torch")(features=4, classes=3)
        >>> net.neutral_state()["fc.weight"].shape
        (3, 4)
        >>> net.init_kwargs
        {'features': 4, 'classes': 3}
    """

    @classmethod
    def on(
        cls: type[N],
        backend: BackendName | str | Networks[Any],
        *,
        seed: int | None = None,
        dtype: str | None = None,
        device: Any = None,
    ) -> type[N]:
        """Return a native class of this network, or (with options) a function that builds it.

        For type checkers it is the class as written: its arguments, attributes and methods are
        known, and whatever else the framework's own networks have is taken as it comes.

        Args:
            backend: Its name, ``"torch"``, ``"chainer"``, ``"jax"`` …, or the backend itself.
            seed: Keys the start values, together with each parameter's path; 0 when not given.
            dtype: ``"float32"`` (when not given), ``"float64"`` and what else the backend can
                compute in.
            device: One of ``backend.devices()``.

        Raises:
            BackendUnavailable: The backend is unknown, not installed or broken.
            DtypeError, DeviceError: The backend has no such type or device.

        Example:
            >>> from deliralike import zoo
            >>> create = zoo.find("mlp").on("torch", seed=1, dtype="float64")
            >>> network = create(in_features=8, out_features=3)
            >>> network.neutral_state()["layers.0.weight"].dtype
            dtype('float64')
        """
        if isinstance(backend, str):
            backend = importlib.import_module("deliralike.backends").get(backend)
        bound: Any = _bound_class(cls, backend)
        if seed is None and dtype is None and device is None:
            return bound
        builder: Any = partial(
            build, bound, seed=seed or 0, dtype=dtype or "float32", device=device
        )
        return builder

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; every network written once has its own."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward method: write one"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the class as written and the backend's name.

        A bound class has no importable name.
        """
        reduced: Any = super().__reduce_ex__(protocol)
        return (
            _new_instance,
            (type(self).written_once, self.backend.name),
            *reduced[2:],
        )


def build(
    network_class: Callable[..., Any],
    *args: Any,
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    **kwargs: Any,
) -> Any:
    """Create a network of a bound or native class with a seed, data type and device of its own.

    Example:
        >>> from deliralike import backends
        >>> layer = build(backends.get("torch").nn.Linear, 3, 2, dtype="float64")
        >>> layer.neutral_state()["weight"].dtype
        dtype('float64')
    """
    backend = network_class.backend  # type: ignore[attr-defined]
    construction = Construction(
        backend=backend,
        seed=seed,
        dtype=backend.check_dtype(dtype),
        device=backend.check_device(device),
    )
    return _build_outermost(partial(network_class, *args, **kwargs), construction)


def _build_outermost(create: Callable[[], Any], construction: Construction) -> Any:
    """Create a network and all its blocks in one construction, and finish it.

    A framework's own network, which a function may return, has its start values already.
    """
    with constructing(construction):
        network = create()
    if isinstance(network, AbstractNetwork):
        finish(network, construction)
    return network


def finish(network: Any, construction: Construction) -> None:
    """Give a freshly built network its paths and start values.

    Raises:
        ConstructionError: A block has the name of something that every network has, or a layer is
            held where it would be overlooked.
    """
    blocks = dict(network.named_blocks())
    for path, block in blocks.items():
        owner, _, block_name = path.rpartition(".")
        if block_name and isinstance(blocks.get(owner), AbstractNetwork):
            _refuse_hidden(blocks[owner], path)
        if isinstance(block, AbstractNetwork):
            block.block_path = path
            block.dtype_built = construction.dtype
            for name, value in vars(block).items():
                refuse_plain_container(block, name, value)
                if name in ("backend", "nn"):
                    _refuse_hidden(block, f"{path}.{name}".lstrip("."), "an attribute")
    refuse_unregistered(network, blocks)
    declared = _start_values(blocks).items()
    for name, slot in network.neutral_slots().items():
        start = construction.start_of(slot.native)
        if start is not None:
            for pattern, distribution in declared:
                if fnmatch.fnmatchcase(name, pattern):
                    start = distribution  # the last one wins
            slot.write(draw(start, slot.shape, construction.seed, name))


def _refuse_hidden(owner: Any, path: str, what: str = "a block") -> None:
    """Refuse a block or attribute that has the name of something else of its network.

    The frameworks differ in which of both they find: PyTorch's modules have methods ``double`` and
    ``type``, Chainer's ``links`` and ``params``.

    Raises:
        ConstructionError: Names the block's path.
    """
    name = path.rpartition(".")[2]
    attributes = AbstractNetwork.__annotations__ | NetworkCore.__annotations__
    if name in getattr(type(owner), "_may_be_hidden", ()):
        return
    if (
        name in attributes
        or hasattr(AbstractNetwork, name)
        or hasattr(type(owner), name)
    ):
        raise ConstructionError(
            f"{what} at {path!r} cannot be called {name!r}: {type(owner).__name__}, or its base of "
            "the framework, has something so called, which it would hide or be hidden by"
        )


def _start_values(blocks: Mapping[str, Any]) -> dict[str, Distribution]:
    """Return the start values that all blocks declare, by patterns of full dotted names."""
    start_values = {}
    for path, block in blocks.items():
        if not isinstance(block, AbstractNetwork):
            continue
        for pattern, distribution in block.start_values.items():
            if not hasattr(distribution, "draw"):
                raise SettingError(
                    f"start_values of {type(block).__name__}: {pattern!r} is {distribution!r}, "
                    "wanted a distribution such as start.ZEROS or start.Normal(0.02)"
                )
            start_values[f"{path}.{pattern}".lstrip(".")] = distribution
    return start_values


@cache
def _bound_class(written_once: type, backend: Networks[Any]) -> type:
    """Return the native class: its bases are the class as written and the backend's own base.

    Raises:
        UnboundNetwork: The class belongs to a backend already.
    """
    bound_to = getattr(written_once, "backend", None)
    if bound_to is not None:
        raise UnboundNetwork(
            f"{written_once.__name__} belongs to {bound_to.name!r} already"
        )
    attributes = {
        "__module__": written_once.__module__,
        "__qualname__": written_once.__qualname__,
        "__doc__": written_once.__doc__,
        "written_once": written_once,
    }
    base = backend.network_base
    metaclass: Any = type(base)
    return metaclass(written_once.__name__, (written_once, base), attributes)


def _new_instance(written_once: type, backend_name: str) -> Any:
    bound = written_once.on(backend_name)  # type: ignore[attr-defined]
    return bound.__new__(bound)
