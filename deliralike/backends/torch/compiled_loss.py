"""Forward pass and loss of an update as one program of ``torch.compile``.

Only this backend has this file: JAX compiles each step anyway, and Chainer compiles nothing.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from deliralike import nest
from deliralike.errors import SettingError
from deliralike.network.base import AbstractNetwork

# so that the programs of one optimizer do not count against those of another; not in torch 2.11
_ISOLATED: dict[str, Any] = {}
if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
    _ISOLATED["isolate_recompiles"] = True


class LossCompiler:
    """Compiles the loss functions of one optimizer.

    A program is made for each loss function, at the first call. It is made anew for inputs of other
    shapes, once with sizes that may vary, and where the network has changed: its mode, its blocks,
    which parameters are frozen. PyTorch makes eight programs at most, and then computes eagerly
    with a warning; ``recompile_limit`` is another number.
    """

    def __init__(self, network: AbstractNetwork, settings: Mapping[str, Any]) -> None:
        """Refuse networks and settings that cannot be compiled; nothing is compiled yet.

        Raises:
            SettingError: The network has replicas, or ``torch.compile`` has no such setting.
        """
        parallelism = network.parallelism
        if parallelism.is_replicated or parallelism.processes.count > 1:
            raise SettingError(
                "compile: each replica is a network of its own, so compile the network first and "
                "replicate what torch.compile(network) gives; then leave compile out"
            )
        self._is_on_gpu = network.device_name.startswith("cuda")
        if self._is_on_gpu and not {"mode", "options", "backend"} & settings.keys():
            settings = {"mode": "reduce-overhead", **settings}  # CUDA graphs
        try:
            with warnings.catch_warnings():
                # torch 2.13 sends it to itself when inductor is imported
                warnings.filterwarnings(
                    "ignore", ".torch.jit.script_method. is deprecated"
                )
                self._program = torch.compile(_compute, **_ISOLATED, **settings)
        except (TypeError, RuntimeError) as error:
            raise SettingError(
                f"compile={dict(settings)}: torch.compile: {error}"
            ) from None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a loss function that computes the same as one program."""
        return partial(self._run, function)

    def _run(self, function: Callable[..., Any], network: Any, *batch: Any) -> Any:
        if not self._is_on_gpu:
            return self._program(function, network, *batch)
        torch.compiler.cudagraph_mark_step_begin()
        result = self._program(function, network, *batch)
        # the next step writes over what a CUDA graph returns
        return nest.map_where(torch.is_tensor, torch.clone, result)


def _compute(function: Callable[..., Any], network: Any, *batch: Any) -> Any:
    return function(network, *batch)
