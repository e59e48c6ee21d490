"""Classes of one framework that are asked for on another one: ported, and proved, on the way."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from typing import Any

from deliralike import backends
from deliralike.conformance import Proof
from deliralike.errors import ProofFailed, SettingError, UnboundNetwork
from deliralike.port.porting import Port, framework_of_class, port


def framework_of(network: Any, arguments: Mapping[str, Any]) -> str | None:
    """The backend whose class it is, or whose network a function creates; None for all others."""
    if hasattr(network, "on"):  # written once
        return None
    if inspect.isfunction(network):
        try:
            network = type(network(**arguments))
        except (
            TypeError,
            UnboundNetwork,
        ):  # written once, or it takes what the backend gives
            return None
    framework = framework_of_class(network)
    return None if framework is None else framework.packages[0]


def port_of(
    name: str, network: Any, inputs: Any, arguments: Mapping[str, Any], seed: int = 0
) -> Port:
    """Port a class or function with the start values of a seed.

    Args:
        name: What messages call it: ``"models.py:Net"``.
        network, inputs, arguments: See `deliralike.port.port`.

    Raises:
        SettingError: Something needs a hand; the message has its lines.
    """
    framework = framework_of(network, arguments)
    if framework is not None:
        backends.get(framework).seed(seed)
    found = port(network, inputs, **arguments)
    if found.hands:
        lines = "\n".join(f"  {remark}" for remark in found.hands)
        raise SettingError(
            f"the port of {name} needs a hand:\n{lines}\n"
            f"Write it by 'deliralike port {name} --input SHAPE', and use the result."
        )
    return found


def prove(found: Port, name: str, backend: str) -> tuple[Proof, float]:
    """Prove a port, and return how many seconds it took.

    Raises:
        ProofFailed: It differs, or nothing was decided.
    """
    begin = time.monotonic()
    proof = found.prove(backend)
    if proof.exit_code:
        raise ProofFailed(
            f"the port of {name} is not proved on {backend}, and is not used: {proof.headline}. "
            f"'deliralike port {name} --input SHAPE' writes it"
        )
    return proof, time.monotonic() - begin
