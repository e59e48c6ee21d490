"""Every error that deliralike raises on purpose.

Each is also a standard error, so that code which catches `ValueError` or `ImportError` keeps
working. A message says where, what came, what was wanted and what to do.
"""

import fnmatch
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from deliralike.terminal import plain

_LONGEST_REASON = 300


class DeliralikeError(Exception):
    """The common base of every error raised on purpose."""

    def __str__(self) -> str:
        """Return the message; control characters in names that came from a file are written out."""
        return plain(super().__str__())


class BackendUnavailable(DeliralikeError, ImportError):
    """A backend is unknown, not installed or broken."""


class UnknownName(DeliralikeError, LookupError):
    """There is no network, dataset, file format or setting of that name."""


class UnknownOperation(UnknownName, AttributeError):
    """The vocabulary `nn` has no layer or function of that name."""


class ArgumentError(DeliralikeError, TypeError):
    """A layer or network was given an unknown argument, or lacks one that it needs."""


class OptimizerError(ArgumentError, RuntimeError):
    """An object that is given as an optimizer, or as a class of optimizers, is not one."""


class SettingError(DeliralikeError, ValueError):
    """An argument has a value that makes no sense here."""


class AnotherBackend(SettingError):
    """A network that was written for one backend was asked for on another one."""


class UnboundNetwork(DeliralikeError, TypeError):
    """A network written once was created without a backend."""


class ConstructionError(DeliralikeError, TypeError):
    """A network holds layers in a place where a framework would not find them."""


class ShapeError(DeliralikeError, ValueError):
    """An array has a shape that a layer or function cannot take."""


class OperationError(DeliralikeError, ValueError, TypeError):
    """A function of `nn` cannot be computed of these arguments.

    Attributes:
        cause: What the framework, or Python, says of it.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class IndexRangeError(DeliralikeError, IndexError):
    """A label or index lies outside of what it indexes."""


class DtypeError(DeliralikeError, TypeError):
    """A data type is unknown, or the backend cannot compute in it."""


class DeviceError(DeliralikeError, ValueError, RuntimeError):
    """A device is unknown to the backend or not present on this machine."""


class CapabilityError(DeliralikeError, NotImplementedError):
    """The backend declares that it lacks what was asked for."""


class StateError(DeliralikeError, ValueError):
    """Weights do not fit a network; the network was left as it was."""


class WeightFileError(DeliralikeError, ValueError):
    """A weight file cannot be read safely, or not be written."""


class WeightFileMissing(WeightFileError, FileNotFoundError):
    """There is no such weight file."""


class DownloadError(DeliralikeError, ConnectionError):
    """A file cannot be had from the network.

    Attributes:
        status: The status that the server answered with; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class CheckpointError(DeliralikeError, ValueError):
    """A checkpoint cannot be read or written, or belongs to another run; it changed nothing."""


class CheckpointMissing(CheckpointError, FileNotFoundError):
    """There is no such checkpoint."""


class BatchError(DeliralikeError, ValueError):
    """A batch cannot be used as it is."""


class BatchTypeError(BatchError, TypeError):
    """A batch is no dict, tuple or list."""


class WorkerTimeout(DeliralikeError, TimeoutError):
    """A worker of a loader did not produce a batch in time: it hangs or is stopped."""


class StructureError(DeliralikeError, ValueError):
    """Two nested containers that must have the same structure differ."""


class ReplicaError(DeliralikeError, RuntimeError):
    """The replicas of a network do not behave alike."""


class ProcessError(ReplicaError):
    """Processes that train together do not behave alike, or one of them has failed."""


class ProofFailed(DeliralikeError, AssertionError):
    """Two networks are not equal, or their equality was not shown."""


class DataUnavailable(DeliralikeError, ImportError):
    """A dataset needs a package that is not installed."""


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Add the name of a file to an operating system error that lacks it, as on a full disk.

    Raises:
        OSError: The error that was raised in the ``with`` block, with the name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def reason(error: BaseException) -> str:
    """Return the words of an error in one line, or the name of its class if it has none."""
    words = " ".join(str(error).split())
    return words[:_LONGEST_REASON].rstrip(".") or type(error).__name__


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, and no flag."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a setting that is a whole number of at least `least`.

    Raises:
        SettingError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise SettingError(
            f"{name}={value!r} must be a whole number of at least {least}"
        )
    return int(value)


def refuse_unknown_word(name: str, word: Any, choices: Collection[Any]) -> None:
    """Refuse a setting that is none of some words, with the nearest ones.

    Raises:
        SettingError: Names the setting and the word.
    """
    refuse_unknown(word, choices, f"{name}={word!r} is unknown", SettingError)


def refuse_unknown_settings(
    owner: str, settings: Iterable[str], known: Iterable[str]
) -> None:
    """Raise an error for the first setting that is unknown, with the nearest known ones.

    Raises:
        ArgumentError: Names the owner and the setting.
    """
    known = list(known)
    for setting in settings:
        message = f"{owner} has no setting {setting!r}"
        refuse_unknown(setting, known, message, ArgumentError)


def refuse_unknown(
    name: object,
    known: Iterable[object],
    message: str,
    error: type[DeliralikeError] = UnknownName,
) -> None:
    """Raise an error if a name is not among the known ones, with the nearest of these.

    Args:
        message: The beginning of the error, without a full stop.

    Raises:
        DeliralikeError: One of the class `error`.

    Example:
        >>> refuse_unknown("fast", ("slow", "fastest"), "there is no mode 'fast'")
        Traceback (most recent call last):
        ...
        deliralike.errors.UnknownName: there is no mode 'fast'. Did you mean 'fastest'?
    """
    known = list(known)
    if name not in known:
        raise error(f"{message}. {suggestion(str(name), known)}")


def listed(names: Iterable[object], most: int = 3) -> str:
    """Return names for a sentence, of many the first few and how many there are besides.

    Example:
        >>> listed("ab"), listed("abcdefg")
        ('a, b', 'a, b, c and 4 more')
    """
    words = list(map(str, names))
    shown = ", ".join(words[:most])
    if len(words) > most:
        return f"{shown} and {len(words) - most} more"
    return shown


def matching(pattern: str, names: Iterable[str], what: str) -> list[str]:
    """Return the names that match a pattern such as ``"layer1.*"``, of which there is one at least.

    Args:
        what: What an error says that nothing of it matches: ``"no parameter"``.

    Raises:
        ArgumentError: It is no text; several patterns come one by one.
        UnknownName: None matches; names the nearest.

    Example:
        >>> matching("fc.*", ["conv.weight", "fc.weight", "fc.bias"], "no parameter")
        ['fc.weight', 'fc.bias']
    """
    if not isinstance(pattern, str):
        raise ArgumentError(
            f"{pattern!r} is no pattern of names: wanted one, such as 'fc.*'"
        )
    known = list(names)
    found = fnmatch.filter(known, pattern)
    if not found:
        raise UnknownName(f"{what} matches {pattern!r}. {suggestion(pattern, known)}")
    return found


def suggestion(name: str, choices: Iterable[object]) -> str:
    """Return a sentence that names the nearest choices; when none is near, all, or five of many.

    Example:
        >>> suggestion("resnet81", ["resnet18", "resnet34", "unet"])
        "Did you mean 'resnet18' or 'resnet34'?"
        >>> suggestion("a", [f"{letter}{number}" for letter in "abc" for number in range(9)])
        "Did you mean 'a8' or 'a7'?"
        >>> suggestion("z", range(100, 130))
        'The nearest of 30: 125, 126, 127, 128, 129.'
    """
    known = [str(choice) for choice in choices]
    near = get_close_matches(str(name), known, n=2, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    if len(known) > _MOST_LISTED:
        nearest = get_close_matches(str(name), known, n=5, cutoff=0.0)
        return f"The nearest of {len(known)}: {', '.join(sorted(nearest))}."
    return f"Known: {', '.join(sorted(known)) or 'none'}."


_MOST_LISTED = 20  # names that an error lists
