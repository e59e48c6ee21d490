"""Calls of a framework's own functions, seen as calls of the functions of `nn`.

A backend has a table: for each native function another one of the same arguments, which says what
the call is in the vocabulary of `nn`. Arrays stand there as `NativeArray`, which know how they are
turned from the native layout into that of `nn`, so that a neutral call is made by the native
function.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from deliralike import nest
from deliralike.network.core import parts
from deliralike.nn.functional import Functions

Interceptor = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def identity(value: Any) -> Any:
    """Return a value as it is."""
    return value


class NativeArray:
    """An array among the arguments of a native call.

    It is no dataclass: as a part of a nest it is a leaf.

    Attributes:
        index: Its position among all leaves of the arguments.
        array: As it was given.
        to_neutral, to_native: From the native array to that of the neutral call, and back.
    """

    def __init__(
        self,
        index: int,
        array: Any,
        to_neutral: Callable[[Any], Any] = identity,
        to_native: Callable[[Any], Any] = identity,
    ) -> None:
        """Refer to an array; nothing is copied."""
        self.index, self.array = index, array
        self.to_neutral, self.to_native = to_neutral, to_native

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the native array."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.array.shape)

    @property
    def is_bool(self) -> bool:
        """Whether it is a mask of truth values."""
        return "bool" in str(self.array.dtype)

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return "int" in str(self.array.dtype)

    def converted(
        self, to_neutral: Callable[[Any], Any], to_native: Callable[[Any], Any]
    ) -> NativeArray:
        """Return the same, turned for the neutral call."""
        return NativeArray(self.index, self.array, to_neutral, to_native)


@dataclass(frozen=True)
class Neutral:
    """What a native call is as a call of a function of `nn`.

    Attributes:
        name: Of the function.
        args: Its arguments by position, all of them; arrays as `NativeArray`. Arrays that the
            native call does not get (a mask for ``is_causal``) are only to be looked at.
        pick: From the native result to the neutral one.
        put: From the neutral result, and the native one, to the native one.
    """

    name: str
    args: tuple[Any, ...]
    pick: Callable[[Any], Any] = identity
    put: Callable[[Any, Any], Any] = lambda neutral, native: neutral

    def with_results(
        self, pick: Callable[[Any], Any], put: Callable[[Any, Any], Any]
    ) -> Neutral:
        """Return the same with another way from the native result to the neutral one."""
        return replace(self, pick=pick, put=put)


Row = Callable[..., Neutral | None]
Rows = dict[str, Row | None]  # by the name of the native function
Table = dict[Any, tuple[str, Row | None]]


def call_of(name: str, **arguments: Any) -> Neutral:
    """Return a call of a function of `nn`, with the defaults filled in."""
    bound = _signature(name).bind(None, **arguments)
    bound.apply_defaults()
    return Neutral(name, tuple(bound.arguments.values())[1:])


def renamed(
    name: str,
    arguments: str,
    only: Mapping[str, Any] | None = None,
    when: Callable[..., bool] | None = None,
    convert: Callable[[Any], Any] = identity,
    **settings: Any,
) -> Row:
    """Return the row of a native function that is one of `nn` with other names of arguments.

    Args:
        name: Of the function of `nn`.
        arguments: Those of the native function in order, each with its name in `nn` behind ``=``
            where that is another; with nothing behind ``=`` it is left out.
        only: Native arguments that `nn` does not have, with the values for which it has the
            function.
        when: Takes the native arguments; whether `nn` has the function for these.
        convert: What makes an argument of `nn` of each native one.
        settings: Arguments, where the defaults of the native function and of `nn` differ.

    Example:
        >>> elu = renamed("elu", "input=x alpha inplace=", alpha=0.5)
        >>> elu("array", inplace=True).args
        ('array', 0.5, False)
    """
    names = {}
    for word in arguments.split():
        native, has_other, other = word.partition("=")
        names[native] = other if has_other else native
    wanted = only or {}

    def row(*args: Any, **kwargs: Any) -> Neutral | None:
        given = {**wanted, **settings, **dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or (when is not None and not when(**given)):
            return None
        if any(given.pop(native) != value for native, value in wanted.items()):
            return None
        ours = {
            names.get(native, native): convert(value) for native, value in given.items()
        }
        ours.pop("", None)
        return call_of(name, **ours)

    return row


def elementwise(names: str, arguments: str = "x") -> Rows:
    """Return the rows of functions of one array whose names are the same in `nn`.

    Args:
        names: With spaces between them.
        arguments: As in `renamed`.
    """
    return {name: renamed(name, arguments) for name in names.split()}


def unpartnered(names: str) -> Rows:
    """Return the rows of functions without a partner in `nn`, which are followed by their names."""
    return dict.fromkeys(names.split())


def unpacked(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return sizes or axes that were given one by one, or as one sequence."""
    if len(numbers) == 1 and not isinstance(numbers[0], int):
        return tuple(numbers[0])
    return numbers


def along_one_axis(axis: Any, **others: Any) -> bool:
    """Return whether a native function is called for one axis."""
    return isinstance(axis, int)


def by_numbers(min: Any = None, max: Any = None, **others: Any) -> bool:
    """Return whether both limits are given as numbers."""
    return isinstance(min, int | float) and isinstance(max, int | float)


@cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(Functions, name))


class Follower:
    """Lets `interceptor` make the outermost calls of native functions, in one thread.

    Args:
        interceptor: Called with the name of the function, the call, and the call's arguments; what
            it returns takes the place of the result.
        is_array: Whether a value is an array of the backend.
        is_open: Whether a call may be followed now. Within a program that the framework traces
            apart (`vmap`, a loop), arrays must not be carried out of it.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        is_array: Callable[[Any], bool],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """Follow calls of the present thread."""
        self._interceptor, self._is_array, self._is_open = (
            interceptor,
            is_array,
            is_open,
        )
        self._thread = threading.get_ident()
        self._inside = False

    def __call__(
        self,
        name: str,
        neutral: Row | None,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Make a native call, through `interceptor` where it is an outermost one that has arrays.

        Args:
            name: Of the native function, with that of its module.
            neutral: What the call is in `nn`; None where `nn` has no such function.
            call: The function.
            args, kwargs: Its arguments.
        """
        if self._inside or threading.get_ident() != self._thread or not self._is_open():
            return call(*args, **kwargs)
        leaves, structure = nest.flatten((args, dict(kwargs)))
        given = [
            NativeArray(at, x) if self._is_array(x) else x
            for at, x in enumerate(leaves)
        ]
        if not any(isinstance(leaf, NativeArray) for leaf in given):
            return call(*args, **kwargs)
        self._inside = True
        try:
            neutral_call = _neutral(name, neutral, *nest.unflatten(structure, given))
            return self._followed(neutral_call, call, leaves, structure)
        finally:
            self._inside = False

    def _followed(
        self,
        neutral_call: Neutral,
        call: Callable[..., Any],
        leaves: list[Any],
        structure: Any,
    ) -> Any:
        results = []

        def native_call(*neutral_args: Any) -> Any:
            args, kwargs = nest.unflatten(
                structure, _native(neutral_call.args, neutral_args, leaves)
            )
            results.append(call(*args, **kwargs))
            return neutral_call.pick(results[-1])

        args = nest.map(_to_neutral, neutral_call.args)
        result = self._interceptor(neutral_call.name, native_call, args, {})
        return neutral_call.put(result, results[-1]) if results else result


def _neutral(name: str, neutral: Row | None, args: Any, kwargs: Any) -> Neutral:
    """Return what a call is; one that `nn` does not have takes its arrays alone."""
    found = None
    if neutral is not None:
        try:
            found = neutral(*args, **kwargs)
        except (TypeError, ValueError, IndexError):
            found = None  # other arguments than the table knows, or wrong ones: the call will say
    if found is not None:
        return found
    short = name.rpartition(".")[2]
    arrays = tuple(
        leaf for leaf in nest.leaves((args, kwargs)) if isinstance(leaf, NativeArray)
    )
    is_known = neutral is not None and hasattr(Functions, short)
    return Neutral(name if is_known else short, arrays)


def _to_neutral(leaf: Any) -> Any:
    return leaf.to_neutral(leaf.array) if isinstance(leaf, NativeArray) else leaf


def _native(slots: Any, given: Any, leaves: Sequence[Any]) -> list[Any]:
    """Return the leaves of a native call whose arrays are those of a neutral one."""
    changed = list(leaves)
    for slot, array in zip(nest.leaves(slots), nest.leaves(given), strict=True):
        if isinstance(slot, NativeArray):
            changed[slot.index] = slot.to_native(array)
    return changed


def in_code_of_users(
    package: str, intercept_calls: Callable[..., AbstractContextManager[None]]
) -> Callable[..., AbstractContextManager[None]]:
    """Return `Backend.intercept_native_functions` of a framework.

    A network that is a single layer of the framework's own is left alone.

    Args:
        package: The framework's name.
        intercept_calls: Called with the blocks of the native network, and the interceptor.
    """

    def intercept(
        network: Any, interceptor: Interceptor
    ) -> AbstractContextManager[None]:
        blocks = list({id(block): block for block in parts(network)}.values())
        kinds = [type(block).__module__.partition(".")[0] for block in blocks]
        if kinds == [package]:
            return nullcontext()
        return intercept_calls(blocks, interceptor)

    return intercept


# Layouts
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ChannelsLast:
    """Turns pictures with channels last into those of `nn`, with channels first, and back.

    Attributes:
        permute: ``permute(x, axes)`` of the framework.
    """

    permute: Callable[[Any, Sequence[int]], Any]

    def argument(self, x: NativeArray) -> NativeArray:
        """Return an argument with its last axis second."""
        return x.converted(self.to_neutral, self.to_native)

    def result(self, neutral: Neutral) -> Neutral:
        """Return a call whose native result has channels last."""
        return neutral.with_results(
            self.to_neutral, lambda y, native: self.to_native(y)
        )

    def to_neutral(self, x: Any) -> Any:
        """Move the last axis to the second place."""
        rank = len(x.shape)
        return self.permute(x, (0, rank - 1, *range(1, rank - 1)))

    def to_native(self, x: Any) -> Any:
        """Move the second axis to the last place."""
        rank = len(x.shape)
        return self.permute(x, (0, *range(2, rank), 1))


def product_of(equation: Any, operands: Sequence[Any], permute: Any) -> Neutral | None:
    """Return an einsum as the product of matrices that it is, or else as it is.

    Args:
        equation: Such as ``"bqhd,bkhd->bhqk"``; of another form of an einsum nothing is known.
        operands: Its arrays.
        permute: ``permute(x, axes)`` of the framework.
    """
    if not isinstance(equation, str):
        return None
    plain = Neutral("einsum", (equation, *operands))
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    x, comma, y = inputs.partition(",")
    letters = (x, y, output)
    if not (arrow and comma and all(part.isalpha() for part in letters)):
        return plain
    if len(operands) != 2 or any(len(set(part)) != len(part) for part in letters):
        return plain
    shared = [one for one in output if one in x and one in y]
    over = [one for one in x if one in y and one not in output]
    rows = [one for one in x if one not in y]
    columns = [one for one in y if one not in x]
    is_matrix = len(rows) == 1 or (not shared and rows)
    if (
        len(over) != 1
        or len(columns) != 1
        or not is_matrix
        or set(rows + columns) - set(output)
    ):
        return plain
    left = _ordered(operands[0], x, [*shared, *rows, *over], permute)
    right = _ordered(operands[1], y, [*shared, *over, *columns], permute)
    result_axes = [*shared, *rows, *columns]
    forth = [output.index(one) for one in result_axes]
    back = [result_axes.index(one) for one in output]
    found = call_of("matmul", x=left, y=right)
    return found.with_results(
        lambda z: permute(z, forth), lambda z, native: permute(z, back)
    )


def _ordered(x: Any, letters: str, wanted: Sequence[str], permute: Any) -> Any:
    """Return an operand with its axes in an order of letters."""
    forth = [letters.index(one) for one in wanted]
    if not isinstance(x, NativeArray) or forth == sorted(forth):
        return x
    back = [wanted.index(one) for one in letters]
    return x.converted(lambda y: permute(y, forth), lambda y: permute(y, back))


def square(pads: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return padding that is equal at both ends of each axis; None for any other.

    Example:
        >>> square([(1, 1), (2, 2)]), square([(0, 1)])
        ((1, 2), None)
    """
    if any(before != after for before, after in pads):
        return None
    return tuple(int(before) for before, _ in pads)


def padding_of(
    padding: Any, sizes: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> list[tuple[int, int]]:
    """Return padding as numbers for each axis; ``"SAME"`` and ``"VALID"`` as TensorFlow has them.

    Args:
        padding: One of these words, a number, or pairs.
        sizes, window, stride: For each axis; a dilated window has its full width.
    """
    if isinstance(padding, int):
        return [(padding, padding)] * len(sizes)
    if not isinstance(padding, str):
        return [
            (pair, pair) if isinstance(pair, int) else tuple(pair) for pair in padding
        ]
    if padding.upper() == "VALID":
        return [(0, 0)] * len(sizes)
    if padding.upper() != "SAME":
        raise ValueError(padding)
    pads = []
    for size, width, step in zip(sizes, window, stride, strict=True):
        total = max(0, (math.ceil(size / step) - 1) * step + width - size)
        pads.append((total // 2, total - total // 2))
    return pads
