"""``deliralike compare``: proof that a network of the zoo is the same on several backends and over replicas."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
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
        str | None,
        typer.Option(
            "--input", metavar="SHAPE", help="One sample's shape, such as 3x224x224. (default: small pictures)"
        ),
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

    from deliralike import join, zoo
    from deliralike.cli.console import console, progress
    from deliralike.cli.options import key_values, limit_threads
    from deliralike.cli.zoo import shape_of
    from deliralike.conformance.comparing import LEVELS, compare
    from deliralike.conformance.proof import Proofs, check_ending

    files = [check_ending(path) for path in report or ()]  # before all the work
    wanted = tuple(levels.split(",")) if levels else LEVELS
    processes = join()
    chosen = _backends(backends, max(counts, default=1))
    settings = key_values(set_ or (), "--set")
    networks = [zoo.build(name, backend=backend, seed=seed, **settings) for backend in chosen]
    inputs, loss = _probe(zoo.find(name), networks[0], batch, shape_of(input_), seed, settings)
    others = networks[1:] or networks  # one alone is compared with itself, over replicas too
    pairs = [(one, wanted) for one in others]
    over_several = counts or processes.count > 1
    if networks[1:] and over_several and "L6" in wanted:  # of the reference with itself, replicas alone are a question
        pairs.insert(0, (networks[0], tuple(level for level in wanted if level in ("L0", "L1", "L6"))))
    options: dict[str, Any] = {"loss": loss, "replicas": counts, "processes": processes, "steps": steps, "seed": seed}
    with limit_threads(threads), progress() as show:
        proofs = Proofs(tuple(
            compare(networks[0], one, inputs, levels=rungs, **options, progress=partial(_tell, show, one.backend.name))
            for one, rungs in pairs
        ))  # fmt: skip
    found = proofs if len(proofs) > 1 else proofs[0]
    if processes.is_root:
        console().print(found)
        for path in files:
            found.save(path)
    processes.close()
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

    inputs, output = _inputs_and_output(architecture, network, batch, shape, seed, settings)
    if architecture.task == "classification" and isinstance(output, np.ndarray) and output.ndim == 2:
        return (*inputs, np.random.default_rng(seed + 1).integers(0, output.shape[1], batch)), classification_loss
    return inputs, distance_loss


def _inputs_and_output(
    architecture: Any, network: Any, batch: int, shape: tuple[int, ...] | None, seed: int, settings: dict[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """Of the shape that was asked for; else small pictures, or of the usual size where the network takes no others."""
    import numpy as np

    from deliralike.zoo.registry import Input

    def seen(entries: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
        generator = np.random.default_rng(seed)
        inputs = tuple(entry.draw(generator, batch) for entry in entries)
        return inputs, _output(network, inputs)

    if shape is not None:
        return seen([Input(shape)])
    usual = architecture.inputs_for(**settings)
    small = tuple(_smaller(entry) for entry in usual)
    if small != usual:
        with contextlib.suppress(ValueError, RuntimeError):  # too small, or of a fixed size
            return seen(small)
    return seen(usual)


def _smaller(entry: Any) -> Any:
    """A picture of 64 by 64, a volume of 32 by 32 by 32; smaller ones, and all else, as they are."""
    channels, *sides = entry.shape
    largest = {2: 64, 3: 32}.get(len(sides)) if entry.below is None else None
    return entry if largest is None else replace(entry, shape=(channels, *(min(side, largest) for side in sides)))


def _output(network: Any, inputs: tuple[Any, ...]) -> Any:
    """What a network gives in training mode, in which it is compared too; it stays as it is."""
    backend, before = network.backend, network.neutral_state()
    try:
        with network.training_mode(True), backend.evaluating():
            return backend.to_numpy(network(*backend.prepare(inputs, network)))
    finally:
        network.load_neutral_state(before)  # running statistics have moved


def _whole(text: str, option: str) -> list[int]:
    from deliralike.errors import SettingError

    try:
        numbers = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise SettingError(f"{option} {text!r}: wanted whole numbers like 1,2,3") from None
    if any(number < 1 for number in numbers):
        raise SettingError(f"{option} {text!r}: there is at least one replica")
    return numbers
