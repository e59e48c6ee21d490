"""What the port asks of the framework that a class was written for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType, NoneType
from typing import Any

from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from deliralike.nn.primitives import Primitives
from deliralike.port.calls import Call, Entry
from deliralike.port.values import Layer, Value

# Libraries whose functions work on the arrays of every backend, or on none.
_NEUTRAL = ("numpy", "einops", "scipy", "typing_extensions", "deliralike")


class Names:
    """A framework's names of the objects of its public modules.

    Args:
        modules: The full names of modules, and what their members are called; the first that has an
            object names it.
        private: Names that count although they begin with an underscore.
    """

    def __init__(
        self, modules: Mapping[str, str], private: Collection[str] = ()
    ) -> None:
        self._modules, self._private = dict(modules), private
        self._known: dict[int, tuple[Any, str]] = {}

    def __call__(self, value: Any) -> str | None:
        """The name of an object, or None."""
        for module in [one for one in self._modules if one in sys.modules]:
            self._read(sys.modules[module], self._modules.pop(module))
        found, name = self._known.get(id(value), (None, None))
        return name if found is value else None

    def _read(self, module: ModuleType, prefix: str) -> None:
        for name, value in vars(module).items():
            is_public = not name.startswith("_") or prefix + name in self._private
            if not is_public or isinstance(value, ModuleType) or _is_pythons(value):
                continue
            self._known.setdefault(id(value), (value, prefix + name))


def _is_pythons(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, (int, float, str, NoneType)) or (
        isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names
    )


class Framework:
    """A framework whose classes are ported: the tables of its calls, and questions on its objects.

    A new one is a file with the tables and a subclass of this, which goes into
    `deliralike.port.porting.FRAMEWORKS`. Tables and answers that have a value here are needed only
    where the framework has something of the kind.

    Attributes:
        packages: Its packages; the first has the name of its backend.
        title: Its name, for people.
        network_class: The class of its networks, by module and name.
        array_class: The name of the class of its arrays.
        names: Gives its names of its objects, see `Names`.
        ported_modules: Modules of it whose classes are ported as one's own.
        functions: For its functions and classes by name, what stands for a call.
        methods: The same for methods of arrays.
        attributes: The same for attributes of arrays.
        setters: The same for methods of networks that set a member, or give members.
        numpy_functions: The same for functions while a network is created.
        numpy_methods: The same for methods of arrays that NumPy makes.
        same_names: What `nn` has by the same name with the same arguments; None for all of it.
        in_both: Functions that are the same while a network is created and while it runs.
        classes: Classes that have another name in `nn`.
        bases: What stands for its classes of networks as bases.
        dropped: Arguments that are left out.
        layer_sources: Layers that a port writes itself, by name.
        drawing: Functions that draw masks, and the layers in their place.
        attending: Functions of attention that draw masks, and their signatures.
        without_effect: Functions that are called for their effect on the framework.
        idle_methods: Methods of networks that are called for their effect on the framework.
        keywords: Arguments by PyTorch's other names of them.
        devices: Functions and classes that give a device.
        stops_gradients: Decorators and contexts within which nothing has a gradient.
        transparent: Decorators and contexts that do not change what is computed.
        scopes: Methods of networks that open such a context.
        member_tables: Attributes of networks that are tables of their members.
        known_attributes: Attributes of attributes that are the same for all networks.
        unlike_attributes: Attributes of networks that others do not have, and what stands for them.
        other_names: Attributes of its layers that have another name here.
        link_bases: Layers that are bases of classes, and those of `nn` in their place, where
            ``super().__init__`` takes other arguments.
        values: Functions that are written otherwise where they are handed on.
        hands_members_by_name: Whether members are arguments of ``super().__init__`` by their names.
    """

    packages: tuple[str, ...]
    title: str
    network_class: tuple[str, str]
    array_class: str
    names: Names
    functions: Mapping[str, Entry]
    methods: Mapping[str, Entry]
    attributes: Mapping[str, Entry]
    setters: Mapping[str, Entry]
    bases: Mapping[str, str]
    numpy_functions: Mapping[str, Entry] = {}
    numpy_methods: Mapping[str, Entry] = {}
    ported_modules: Collection[str] = ()
    same_names: Collection[str] | None = None
    in_both: Collection[str] = ()
    classes: Mapping[str, str] = {}
    dropped: Collection[str] = ()
    layer_sources: Mapping[str, str] = {}
    drawing: Mapping[str, str] = {}
    attending: Mapping[str, str] = {}
    without_effect: Collection[str] = ()
    idle_methods: Collection[str] = ()
    keywords: Mapping[str, str] = {}
    devices: Collection[str] = ()
    stops_gradients: Collection[str] = ()
    transparent: tuple[str, ...] = ()
    scopes: Collection[str] = ()
    member_tables: Collection[str] = ()
    known_attributes: Mapping[str, str] = {}
    unlike_attributes: Mapping[str, str] = {}
    other_names: Mapping[str, str] = {}
    link_bases: Mapping[str, str] = {}
    values: Collection[str] = ()
    hands_members_by_name = False

    # Modules and names
    # ---------------------------------------------------------------------------------------------

    def owns(self, module: str) -> bool:
        """Whether a module belongs to the framework."""
        return module.partition(".")[0] in self.packages

    def ports(self, module: str) -> bool:
        """Whether a module is to be ported: neither the framework's, Python's, nor a library's."""
        if module in self.ported_modules:
            return True
        top = module.partition(".")[0]
        is_pythons = top in sys.stdlib_module_names
        return not is_pythons and top not in _NEUTRAL and not self.owns(module)

    def name_of(self, value: Any) -> str | None:
        """The framework's name of an object: ``"Conv2d"``, ``"relu"``, ``"init.zeros_"``."""
        return self.names(value)

    def has(self, name: str) -> bool:
        """Whether `nn` has what the framework has by this name."""
        same = self.same_names
        if same is not None and name not in same:
            return False
        is_function = hasattr(Functions, name) or hasattr(Primitives, name)
        return is_function or name in LAYERS

    # Objects
    # ---------------------------------------------------------------------------------------------

    def describe(self, value: Any) -> Value:
        """What is known of a value."""
        raise NotImplementedError

    def is_network_class(self, value: Any) -> bool:
        """Whether an object is a class of networks."""
        module, name = self.network_class
        base = getattr(sys.modules.get(module), name, None)
        return inspect.isclass(value) and base is not None and issubclass(value, base)

    def is_dtype(self, _: Any) -> bool:
        """Whether an object is a type of numbers that NumPy does not have."""
        return False

    def is_half_type(self, _: Any) -> bool:
        """Whether an object is a type of numbers of 16 bits."""
        return False

    def has_custom_gradient(self, _: Any) -> bool:
        """Whether an object is a function whose gradient is written beside it."""
        return False

    # Networks
    # ---------------------------------------------------------------------------------------------

    def blocks(self, network: Any) -> list[Any]:
        """A network and all networks within it."""
        raise NotImplementedError

    def members(self, network: Any) -> list[str]:
        """The names of a container's members; none of another network."""
        raise NotImplementedError

    def layer(self, _: Any) -> Layer | None:
        """A network that has neither members nor a state, with the arguments that it shows."""
        return None

    def follows_mode(self, _: Any) -> bool:
        """Whether all networks within one are in the mode that it is set to."""
        return True

    def parameters(self, _: Any) -> list[str]:
        """The names of a network's parameters that the port has as well, its own first."""
        return []

    def frozen(self, _: Any) -> list[str]:
        """The names of a network's parameters that are not trained."""
        return []

    def unsaved(self, _: Any) -> dict[str, Any]:
        """The buffers of a network that are not saved."""
        return {}

    def noting_axes(self, _: dict[int, int]) -> AbstractContextManager[None]:
        """Note with how many axes networks are called in a block, where their names do not tell."""
        return nullcontext()

    def lists_members(self, _: Any) -> bool:
        """Whether ``super().__init__`` of a class takes its members one by one."""
        return False

    def has_named_members(self, _: Any) -> bool:
        """Whether networks of a class that is no container give members by ``network["name"]``."""
        return False

    # Calls
    # ---------------------------------------------------------------------------------------------

    def refuse_old(self, call: Call, function: Any) -> None:
        """Refuse a call with arguments of former times.

        Raises:
            NeedsHand: It has some.
        """

    def masking(self, call: Call) -> dict[str, str]:
        """The source of ``input``, ``p`` and ``training`` in a call of one of `drawing`."""
        raise NotImplementedError

    def in_numpy(self, call: Call) -> str:
        """The source of a call while a network is created.

        Raises:
            NeedsHand: NumPy has nothing of this name.
        """
        raise NotImplementedError

    def by_numpy(self, call: Call, module: str) -> str | None:
        """The source of a call of NumPy's while the network computes; None where it stays.

        Args:
            call: The call.
            module: What is called ``np`` or ``self.xp`` there, as source.

        Raises:
            NeedsHand: It computes with arrays of the network, or draws numbers.
        """
        del call, module
        return None

    def arguments_of_base(self, call: Call) -> str:
        """The arguments of ``super().__init__`` in a class based on one of `link_bases`."""
        raise NotImplementedError

    def in_axes(self, kwargs: dict[str, str]) -> dict[str, str]:
        """Arguments by NumPy's names."""
        return kwargs
