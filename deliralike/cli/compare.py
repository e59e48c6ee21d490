"""``deliralike compare``: proof that a network is the same on all backends."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.cli.console import console, is_piped, progress
from deliralike.cli.options import Pairs, key_values, loaded_backends, settings_option
from deliralike.cli.zoo import shape_of
from deliralike.errors import ArgumentError, refuse_unknown
from deliralike.terminal import plain


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            help="A network of the zoo (deliralike zoo lists all), or yours: file.py:Net.",
        ),
    ],
    candidate: Annotated[
        str | None,
        typer.Argument(
            metavar="[CANDIDATE]",
            help="What should be the same, such as a port of it: port.py:Net. It gets the weights "
            "of NETWORK. (default: NETWORK on the other backends)",
        ),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(
            help="The backends, the reference first: torch,chainer,jax. (default: all there are)"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples in the batch.", min=1)] = 5,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="SHAPE",
            help="One sample's shape, such as 3x224x224. (default: small ones)",
        ),
    ] = None,
    set_: Annotated[
        Pairs, settings_option("A setting of the network: num_classes=10.")
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Which levels: L0,L1,L3. (default: all)")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Outputs and gradients alone: L0,L1,L3. Networks that agree are then proved in "
            "part.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of weights and batch.")] = 0,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file for the report: .html, .md, .json or .txt; may be given again."
        ),
    ] = None,
) -> None:
    """Prove that a network is the same everywhere, or name the first difference and its cause.

    The exit code is 0 when proved, 1 when it diverges, 2 when the input is wrong or nothing could
    be decided.
    """
    begin = time.perf_counter()
    from deliralike import own_code, zoo
    from deliralike.conformance.comparing import LEVELS, QUICK, compare
    from deliralike.conformance.proof import Proofs, check_ending
    from deliralike.conformance.subject import Subject
    from deliralike.zoo.building import on_first

    files = [check_ending(path) for path in report or ()]  # before all the work
    usual = QUICK if quick else LEVELS
    wanted = tuple(levels.split(",")) if levels else usual
    settings = key_values(set_ or (), "--set")
    names = loaded_backends(backends)
    if candidate is None:
        called_with: dict[str, Any] = {}
        if own_code.is_name(name):  # the others get ports, of which this is the proof
            home = on_first(name, names, seed, settings).backend.name
            names = [home, *(each for each in names if each != home)]
            shape = shape_of(input_)
            called_with = {"proof": False} | (
                {} if shape is None else {"input_shape": shape}
            )
        shared = {"seed": seed, **called_with, **settings}
        networks = [zoo.build(name, backend=each, **shared) for each in names]
    else:
        known = {*zoo.find(name).words, *zoo.find(candidate).words, "num_classes"}
        for key in settings:
            message = f"{name} and {candidate}: there is no setting {key!r}"
            refuse_unknown(key, known, message, ArgumentError)
        networks = [
            on_first(name, names, seed, settings),
            on_first(candidate, names[::-1], seed, settings),
        ]
    reference = networks[0]
    inputs, loss = _probe(
        zoo.find(name), reference, batch, shape_of(input_), seed, settings
    )
    others = networks[1:] or networks  # one alone is compared with itself
    proofs = []
    with progress() as show:
        for number, network in enumerate(others):
            is_same_class = candidate is None
            proof = compare(
                reference,
                Subject(network, loss, keeps_layout=is_same_class),
                inputs,
                levels=wanted,
                loss=loss,
                weights="judge" if is_same_class else "load",
                progress=partial(
                    _show, show, network.backend.name, number, len(others)
                ),
            )
            # What a user waited for: imports and the building of networks, too.
            end = time.perf_counter()
            proofs.append(replace(proof, seconds=end - begin))
            begin = end
    result = Proofs(tuple(proofs)) if len(proofs) > 1 else proofs[0]
    if is_piped():
        print(plain(result))
    else:
        console().print(result)
    for path in files:
        result.save(path)
    raise typer.Exit(result.exit_code)


def _show(
    show: Callable[[str, float], None],
    backend: str,
    number: int,
    count: int,
    words: str,
    done: float,
) -> None:
    show(f"{backend}: {words}", (number + done) / count)


def _probe(
    architecture: Any,
    network: Any,
    batch: int,
    shape: tuple[int, ...] | None,
    seed: int,
    settings: dict[str, Any],
) -> tuple[tuple[Any, ...], Any]:
    """Return inputs (and labels) of the right kind, and a loss that fits them.

    The inputs have the given shape, or lie as a framework's own network takes that shape; else
    they are small, or of the usual size where the network takes no others.
    """
    import numpy as np

    from deliralike import Network
    from deliralike.conformance.layout_adapter import evaluate_in_own_layout
    from deliralike.conformance.probing import distance_loss
    from deliralike.conformance.subject import Subject
    from deliralike.training import classification_loss
    from deliralike.zoo.inputs import Input

    def probe(entries: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
        generator = np.random.default_rng(seed)
        inputs = tuple(entry.draw(generator, batch) for entry in entries)
        if not isinstance(network, Network):
            inputs, _ = evaluate_in_own_layout(Subject(network, distance_loss), inputs)
        output = _output(network, inputs)
        has_scores = isinstance(output, np.ndarray) and output.ndim == 2
        if architecture.task == "classification" and has_scores:
            classes = output.shape[1]
            labels = np.random.default_rng(seed + 1).integers(0, classes, batch)
            return (*inputs, labels), classification_loss
        return inputs, distance_loss

    if shape is not None:
        return probe([Input(shape)])
    usual = architecture.inputs_for(**settings)
    small = tuple(map(_smaller, usual))
    if small != usual:
        # They may be too small, or the network may want a fixed size.
        with contextlib.suppress(ValueError, RuntimeError):
            return probe(small)
    return probe(usual)


def _smaller(entry: Any) -> Any:
    """Return an input of at most 64 tokens, 256 steps, 64 x 64 or 32 x 32 x 32 pixels.

    Numbers without such axes stay as they are.
    """
    if entry.below is not None:
        return replace(entry, shape=tuple(min(length, 64) for length in entry.shape))
    largest = {2: 256, 3: 64, 4: 32}.get(len(entry.shape))  # by channels and axes
    if largest is None:
        return entry
    channels, *sides = entry.shape
    smaller_sides = [min(side, largest) for side in sides]
    return replace(entry, shape=(channels, *smaller_sides))


def _output(network: Any, inputs: tuple[Any, ...]) -> Any:
    """Return a network's output in training mode, the mode of comparisons; restore its state."""
    backend = network.backend
    before = network.neutral_state()
    try:
        with network.training_mode(True), backend.evaluating():
            arrays = backend.prepare(inputs, network)
            return backend.to_numpy(network(*arrays))
    finally:
        network.load_neutral_state(before)  # running statistics have moved
