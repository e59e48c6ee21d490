"""``deliralike train``: one network, one backend, one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deliralike.training.experiment import Settings


def command(
    network: Annotated[str, typer.Argument(help="A network of the zoo: see 'deliralike zoo'.")],
    data: Annotated[str, typer.Option(help="The dataset.")] = "digits",
    backend: Annotated[str, typer.Option(help="torch, chainer, jax …: see 'deliralike backends'.")] = "torch",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in each batch.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Start values, order of samples, dropout.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A new folder. (default: runs/NETWORK-0001, -0002 …)")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam, adamw or rmsprop.")] = "sgd",
    lr: Annotated[float | None, typer.Option(help="The learning rate. (default: depends on the optimizer)")] = None,
    optimizer_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A number of the optimizer: momentum=0.8.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, float64 …")] = "float32",
    device: Annotated[str | None, typer.Option(help="One of the backend's devices. (default: its first)")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="For BLAS and OpenMP. (default: as many as the libraries choose)")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the network: depth=14.")
    ] = None,
) -> None:
    """Train a network and write its settings, metrics, curves and weights into a new folder.

    Channels and classes are taken from the data.
    """
    from deliralike.cli.options import key_values
    from deliralike.training.experiment import Settings

    numbers = key_values(optimizer_set or (), "--optimizer-set") | ({} if lr is None else {"lr": lr})
    settings = Settings(
        network=network, network_settings=key_values(set_ or (), "--set"), data=data, backend=backend,
        optimizer=optimizer, optimizer_settings=numbers, epochs=epochs, batch_size=batch_size, seed=seed,
        dtype=dtype, device=device,
    )  # fmt: skip
    run(settings, out, threads)


def run(settings: "Settings", out: Path | None, threads: int | None = None) -> None:
    """Train as the settings say; the folder is made when all else has proved possible."""
    from deliralike import data, weights
    from deliralike.cli.console import console, say
    from deliralike.cli.options import limit_threads
    from deliralike.cli.progress import Bar, bars
    from deliralike.training import JsonLines, experiment
    from deliralike.training.curves import draw_curves

    if out is not None:
        experiment.refuse_existing(out)
    dataset = data.load(settings.data)
    settings = experiment.complete(settings, dataset)
    network = experiment.build_network(settings, dataset)
    folder = experiment.new_folder(out) if out else experiment.next_folder("runs", settings.network)
    experiment.write_settings(folder, settings)
    version = network.backend.version()
    say(f"{settings.network} with {network.count_parameters():,} parameters on {version}, writing to {folder}")
    with limit_threads(threads), bars(console()) as progress:
        callbacks = [Bar(progress, settings.backend), JsonLines(folder / experiment.METRICS)]
        history = experiment.train_network(network, settings, dataset, callbacks)
    weights.write(folder / experiment.WEIGHTS, network)
    title = f"{settings.network} on {settings.data}, {settings.dtype}, seed {settings.seed}"
    draw_curves({version: history}, folder / experiment.CURVES, title)
    say(f"held-out accuracy {history.held_out('accuracy')[-1]:.2%}, {_milliseconds(history.seconds_per_step)} a step")
    say(f"see {folder / experiment.CURVES}; try: deliralike predict {folder}")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
