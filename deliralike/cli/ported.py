"""A class of another framework is ported on the way to its training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deliralike.errors import SettingError

if TYPE_CHECKING:
    from deliralike.conformance import Proof
    from deliralike.port.porting import Port
    from deliralike.training.experiment import Experiment, Settings

SOURCE, PROOF = "network.py", "proof.txt"


def ported(
    experiment: Experiment, settings: Settings, dataset: Any, folder: Path | None, with_proof: bool
) -> tuple[Settings, Path] | None:
    """Port a class of PyTorch or Chainer that is to be trained on another backend.

    The folder of the run is made; it holds the source, which is what the run trains, and the proof.

    Returns:
        The settings with the port in the place of the class, and the folder; None for a network
        that the backend can train as it is.

    Raises:
        SettingError: The port needs a hand, or is not proved, before there is a folder; or there
            are several processes.
    """
    from deliralike import own_code

    if not own_code.is_name(settings.network):
        return None
    network = own_code.load(settings.network)
    framework = None if hasattr(network, "on") else _framework_of(network)  # `on`: written once
    if framework in (None, settings.backend):
        return None
    if experiment.processes.count > 1:
        raise SettingError(
            f"{settings.network} is a class of {framework}: port it before training in several "
            f"processes, deliralike port {settings.network} --input SHAPE"
        )
    found = _port_of(network, framework, settings, dataset)
    proof = _proof_of(found, settings) if with_proof else None
    return _write(found, proof, experiment, settings, folder)


def _framework_of(network: Any) -> str | None:
    """The backend whose class it is, or None."""
    try:
        from deliralike.port.porting import TABLES
    except ModuleNotFoundError:  # libcst is not installed: the error of the backend says the rest
        return None
    tables = (table for table in TABLES if table.is_network_class(network))
    return next((table.FRAMEWORK[0] for table in tables), None)


def _port_of(network: Any, framework: str, settings: Settings, dataset: Any) -> Port:
    from deliralike import backends
    from deliralike.port.porting import port

    backends.get(framework).seed(settings.seed)
    found = port(network, (dataset.held_out.inputs[:3],), **settings.network_settings)
    if found.hands:
        lines = "\n".join(f"  {remark}" for remark in found.hands)
        raise SettingError(
            f"{settings.network} on {settings.backend}: its port needs a hand:\n{lines}\n"
            f"Write it by 'deliralike port {settings.network} --input SHAPE', and train the result."
        )
    return found


def _proof_of(found: Port, settings: Settings) -> Proof:
    from deliralike.cli.console import say

    begin = time.monotonic()
    proof = found.prove(settings.backend)
    say(f"the port of {settings.network}, {time.monotonic() - begin:.0f} s for the proof:")
    say(proof.headline)
    if proof.exit_code:
        raise SettingError(
            f"the port of {settings.network} is not proved on {settings.backend}, so nothing was "
            f"trained: 'deliralike port {settings.network} --input SHAPE' writes it"
        )
    return proof


def _write(
    found: Port,
    proof: Proof | None,
    experiment: Experiment,
    settings: Settings,
    folder: Path | None,
) -> tuple[Settings, Path]:
    """Make the folder of the run, with the source and the proof, and train what lies there."""
    from deliralike.cli.console import say
    from deliralike.port.porting import save
    from deliralike.training.experiment import SETTINGS, write_settings

    of_run = experiment.new_folder(folder, settings)
    path = of_run / SOURCE
    save(found, path)
    text = "not proved: --no-proof" if proof is None else str(proof)
    (of_run / PROOF).write_text(f"{text}\n", encoding="utf-8")
    changed = settings.with_(network=f"{path}:{found.class_name}")
    write_settings(of_run / SETTINGS, changed)
    say(f"{settings.network}: ported into {path}{'' if proof else ', without a proof'}")
    return changed, of_run
