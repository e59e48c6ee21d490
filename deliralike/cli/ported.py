"""A class of another framework is ported on the way to its training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deliralike.errors import SettingError

if TYPE_CHECKING:
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
        SettingError: The port needs a hand, or differs from the class; or there are several
            processes.
    """
    from deliralike import own_code

    if not own_code.is_name(settings.network):
        return None
    network = own_code.load(settings.network)
    framework = _framework_of(network)
    if framework in (None, settings.backend):
        return None
    if experiment.processes.count > 1:
        raise SettingError(
            f"{settings.network} is a class of {framework}: port it before training in several "
            f"processes, deliralike port {settings.network} --input SHAPE"
        )
    return _made(experiment, settings, dataset, folder, with_proof)


def _framework_of(network: Any) -> str | None:
    """The backend whose class it is, or None."""
    try:
        from deliralike.port.porting import TABLES
    except ModuleNotFoundError:  # libcst is not installed: the error of the backend says the rest
        return None
    tables = (table for table in TABLES if table.is_network_class(network))
    return next((table.FRAMEWORK[0] for table in tables), None)


def _made(
    experiment: Experiment, settings: Settings, dataset: Any, folder: Path | None, with_proof: bool
) -> tuple[Settings, Path]:
    from deliralike import backends, own_code
    from deliralike.cli.console import say
    from deliralike.port.porting import port, save
    from deliralike.training.experiment.files import write_settings
    from deliralike.training.experiment.folder import SETTINGS

    network = own_code.load(settings.network)
    backends.get(_framework_of(network) or "").seed(settings.seed)
    found = port(network, (dataset.held_out.inputs[:3],), **settings.network_settings)
    if found.hands:
        lines = "\n".join(f"  {remark}" for remark in found.hands)
        raise SettingError(
            f"{settings.network} on {settings.backend}: its port needs a hand:\n{lines}\n"
            f"Write it by 'deliralike port {settings.network} --input SHAPE', and train the result."
        )
    made = experiment.new_folder(folder, settings)
    path = made / SOURCE
    save(found, path)
    changed = settings.with_(network=f"{path}:{found.class_name}")
    write_settings(made / SETTINGS, changed)
    if not with_proof:
        (made / PROOF).write_text("not proved: --no-proof\n", encoding="utf-8")
        say(f"{settings.network}: ported into {path}, without a proof")
        return changed, made
    begin = time.monotonic()
    proof = found.prove(settings.backend)
    (made / PROOF).write_text(f"{proof}\n", encoding="utf-8")
    say(f"{settings.network}: ported into {path}; {time.monotonic() - begin:.0f} s for the proof:")
    say(proof.headline)
    if proof.exit_code:
        raise SettingError(f"{path} is not {settings.network}: see {made / PROOF}")
    return changed, made
