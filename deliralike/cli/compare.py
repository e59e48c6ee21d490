"""``deliralike compare``: proof that a network of the zoo is the same on several backends and over replicas."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    name: Annotated[str, typer.Argument(metavar="NETWORK", help="A network of the zoo. (deliralike zoo lists all)")],
    backends: Annotated[
        str | None, typer.Option(help="The backends, the reference first: torch,chainer,jax. (default: all there are)")
    ] = None,
    replicas: Annotated[str, typer.Option(help="Over how many replicas as well: 1,2,3.")] = "",
    batch: Annotated[int, typer.Option(help="Samples in the batch.", min=1)] = 5,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="SHAPE", help="One sample's shape, such as 3x64x64.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the network: num_classes=10.")
    ] = None,
    levels: Annotated[str | None, typer.Option(help="Which levels: L0,L1,L3. (default: all)")] = None,
    steps: Annotated[int, typer.Option(help="Free steps of the loss curve.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Of weights, batch and masks.")] = 0,
    report: Annotated[
        list[Path] | None, typer.Option(help="A file for the report: .html, .md, .json or .txt; may be given again.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the linear algebra.", min=1)] = None,
) -> None:
    """Prove that a network is the same everywhere, or name the first place that differs and say why.

    The exit code is 0 when proved, 1 when it diverges, 2 when the input is wrong or nothing could be decided.
    """
    counts = tuple(_whole(replicas, "--replicas"))

    from deliralike import zoo
    from deliralike.cli.console import console, progress
    from deliralike.cli.options import key_values, limit_threads
    from deliralike.cli.zoo import shape_of
    from deliralike.conformance.comparing import LEVELS, compare
    from deliralike.conformance.proof import Proofs, check_ending

    files = [check_ending(path) for path in report or ()]  # before all the work
    wanted = tuple(levels.split(",")) if levels else LEVELS
    chosen = _backends(backends, max(counts, default=1))
    settings = key_values(set_ or (), "--set")
    networks = [zoo.build(name, backend=backend, seed=seed, **settings) for backend in chosen]
    inputs, loss = _probe(zoo.find(name), networks[0], batch, shape_of(input_), seed, settings)
    others = networks[1:] or networks  # one alone is compared with itself, over replicas too
    pairs = [*(networks[:1] if counts and networks[1:] else []), *others]
    options: dict[str, Any] = {"loss": loss, "replicas": counts, "levels": wanted, "steps": steps, "seed": seed}
    with limit_threads(threads), progress() as show:
        proofs = Proofs(tuple(
            compare(networks[0], one, inputs, **options, progress=partial(_tell, show, one.backend.name))
            for one in pairs
        ))  # fmt: skip
    found = proofs if len(proofs) > 1 else proofs[0]
    console().print(found)
    for path in files:
        found.save(path)
    raise typer.Exit(found.exit_code)


def _tell(show: Callable[[str], None], backend: str, level: str) -> None:
    show(f"{backend}: {level}")


def _backends(text: str | None, devices: int) -> list[str]:
    from deliralike import backends

    names = text.split(",") if text else backends.available()
    for each in names:
        backends.get(each).prepare_process(devices)  # or an error that names those that there are
    return names


def _probe(
    architecture: Any, network: Any, batch: int, shape: tuple[int, ...] | None, seed: int, settings: dict[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """Inputs (and labels) of the right kind, and a loss that fits them."""
    import numpy as np

    from deliralike.conformance.probing import distance_loss
    from deliralike.training import classification_loss

    if shape is None:
        inputs = architecture.sample(batch, seed=seed, **settings)
    else:
        inputs = (np.random.default_rng(seed).standard_normal((batch, *shape)).astype(np.float32),)
    backend, before = network.backend, network.neutral_state()
    with network.training_mode(True), backend.evaluating():
        output = backend.to_numpy(network(*backend.prepare(inputs, network)))
    network.load_neutral_state(before)  # running statistics have moved
    if architecture.task == "classification" and isinstance(output, np.ndarray) and output.ndim == 2:
        return (*inputs, np.random.default_rng(seed + 1).integers(0, output.shape[1], batch)), classification_loss
    return inputs, distance_loss


def _whole(text: str, option: str) -> list[int]:
    from deliralike.errors import SettingError

    try:
        numbers = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise SettingError(f"{option} {text!r}: wanted whole numbers like 1,2,3") from None
    if any(number < 1 for number in numbers):
        raise SettingError(f"{option} {text!r}: there is at least one replica")
    return numbers
