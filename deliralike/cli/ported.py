"""A class of another framework is ported on the way to its training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deliralike.cli.console import say
from deliralike.errors import SettingError

if TYPE_CHECKING:
    from deliralike.data import Dataset
    from deliralike.port.porting import Port
    from deliralike.training.experiment import Experiment, Settings

SOURCE, PROOF, START = "network.py", "proof.txt", "start.safetensors"


def ported(
    experiment: Experiment, folder: Path | None, with_proof: bool
) -> tuple[Settings, Dataset, Path] | None:
    """Port a class of PyTorch or Chainer that is to be trained on another backend.

    The folder of the run is made; it holds the source, which is what the run trains, and the proof.

    Returns:
        The complete settings with the port in the place of the class, the data and the folder; None
        for a network that the backend can train as it is.

    Raises:
        SettingError: The port needs a hand, before there is a folder; or there are several
            processes.
        ProofFailed: It is not proved; there is no folder.
    """
    import numpy as np

    from deliralike import own_code, zoo

    name = experiment.settings.network
    if not own_code.is_name(name):
        return None
    try:
        from deliralike.port.on_the_way import framework_of, port_of, prove
    except ModuleNotFoundError:
        # libcst is not installed: the error of the backend says the rest.
        return None
    settings, dataset = experiment.complete()
    network = own_code.load(name)
    framework = framework_of(network, settings.network_settings)
    if framework in (None, settings.backend):
        return None
    if experiment.processes.count > 1:
        raise SettingError(
            f"{name} is a class of {framework}: port it before training in several processes, "
            f"deliralike port {name} --input SHAPE"
        )
    # Drawn ones: plain backgrounds have ties in max pooling, where any gradient is right.
    drawn = zoo.Input.like(dataset.held_out.inputs).draw(
        np.random.default_rng(settings.seed), 3
    )
    port = port_of(name, network, (drawn,), settings.network_settings, settings.seed)
    text = "not proved: --no-proof"
    if with_proof:
        proof, seconds = prove(port, name, settings.backend)
        say(f"the port of {name}, {seconds:.0f} s for the proof:")
        say(proof.headline)
        text = str(proof)
    of_run = experiment.new_folder(folder, settings)
    return _write(port, text, settings, of_run), dataset, of_run


def _write(port: Port, proof: str, settings: Settings, of_run: Path) -> Settings:
    """Write the source, the proof and the class's start values, and settings that train them.

    The numbers that the port has by default are among them: those of the data, which a network
    gets where it says none, would make another one when the run is resumed.
    """
    from deliralike import weights, zoo
    from deliralike.port.porting import save
    from deliralike.training.experiment import SETTINGS, write_settings

    path = of_run / SOURCE
    save(port, path)
    (of_run / PROOF).write_text(f"{proof}\n", encoding="utf-8")
    name = f"{path}:{port.class_name}"
    defaults = zoo.find(name).settings.items()
    numbers = {key: value for key, value in defaults if isinstance(value, int)}
    given = {**numbers, **settings.network_settings}
    changed = settings.with_(network=name, network_settings=given)
    if settings.weights is None:
        weights.write(of_run / START, port.network(settings.backend))
        changed = changed.with_(weights=str(of_run / START))
    write_settings(of_run / SETTINGS, changed)
    say(f"{settings.network}: ported into {path}")
    return changed
