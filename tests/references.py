"""What the reference implementations need before they can be imported here, and a way to import
them late."""

import pkgutil
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch


def allow_torchvision() -> None:
    """Let torchvision be imported beside a PyTorch that was built without CUDA.

    PyPI's torchvision is built for CUDA. Its compiled operators do not load then, and importing it
    stops at those that it describes without looking. Networks for classification and segmentation
    use none, so naming them is enough.
    """
    named = hasattr(torch.ops.torchvision, "nms")  # an operator can be named once
    if torch.version.cuda is None and not named:
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )


def compute_on_cpu(owner: Any, name: str) -> None:
    """Let a function of a library compute its tensors on the CPU in a context of the meta device.

    The RegNets work out their widths with tensors, which need values also where weights have none.

    Args:
        owner, name: The module or class that holds the function, and its name there.
    """
    computed = getattr(owner, name)

    @wraps(computed)
    def on_cpu(*args: Any, **settings: Any) -> Any:
        with torch.device("cpu"):
            return computed(*args, **settings)

    setattr(owner, name, on_cpu)


class Later:
    """A module, class or function of a reference implementation, imported when it is first used.

    Importing them all takes longer than most tests; who only collects tests, or runs others, does
    without.

    Attributes:
        path: The dotted name.
        prepare: Called with what was found before it is used for the first time.
    """

    def __init__(self, path: str, prepare: Callable[[Any], None] | None = None) -> None:
        self.path, self.prepare = path, prepare

    @cache
    def found(self) -> Any:
        allow_torchvision()
        with (
            warnings.catch_warnings(),
            torch.device("cpu"),
        ):  # also within a context of PyTorch's meta device
            warnings.simplefilter("ignore")  # of what they use themselves
            found = pkgutil.resolve_name(self.path)
        if self.prepare is not None:
            self.prepare(found)
        return found

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Calls it; what else is to be imported later, as the class of a block, is handed over as
        it is."""
        return self.found()(
            *map(_found, args),
            **{name: _found(value) for name, value in settings.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by whoever looks through a module
            raise AttributeError(name)
        return getattr(self.found(), name)


def _found(value: Any) -> Any:
    return value.found() if isinstance(value, Later) else value
