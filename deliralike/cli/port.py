"""``deliralike port``: a class of one framework becomes the same network written once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.cli.console import say, show_table
from deliralike.cli.options import Pairs, backend_names, key_values, settings_option
from deliralike.cli.zoo import shape_of
from deliralike.errors import SettingError


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            help="A class of PyTorch or Chainer, or a function that creates one: file.py:Net or "
            "package.module:Net.",
        ),
    ],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="SHAPE",
            help="What the network is called with, without the batch: 3x64x64, or whole numbers "
            "below 50000: ints:16:50000. Again for a second input; by name: mask=64x64.",
        ),
    ],
    set_: Annotated[
        Pairs, settings_option("An argument of the class: classes=4.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The new file. (default: the name of the class)"),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(
            help="Where it is proved: jax,chainer. (default: all that are installed)"
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Say what needs a hand; write and prove nothing."),
    ] = False,
    proof: Annotated[
        bool, typer.Option(" /--no-proof", help="Write the port without a proof.")
    ] = True,
) -> None:
    """Rewrite a class as the same network written once, and prove it on each backend.

    The exit code is 0 when it is proved, 1 when it differs, 2 when something needs a hand.
    """
    from deliralike import backends as known
    from deliralike import own_code

    try:
        from deliralike.port.porting import FRAMEWORKS, port, save
    except ModuleNotFoundError as error:
        raise SettingError(f"port: {error}: pip install 'deliralike[port]'") from error
    network = own_code.load(name)
    for framework in {one.packages[0] for one in FRAMEWORKS} & {*known.available()}:
        known.get(framework).seed(0)
    found = port(network, drawn(inputs), **key_values(set_ or (), "--set"))
    columns = ("definition", "lines", "changed")
    show_table(columns, found.changes, right=columns[1:])
    for title, remarks in (("Needs a hand", found.hands), ("Left out", found.left_out)):
        if remarks:
            say(f"{title}:")
            for remark in remarks:
                say(f"  {remark}")
    if check:
        raise typer.Exit(2 if found.hands else 0)
    path = out or Path(f"{found.class_name.lower()}.py")
    save(found, path)
    say(f"Written: {path}")
    differs = False
    if proof:
        for backend in backend_names(backends):
            proved = found.prove(backend)
            differs |= bool(proved.exit_code)
            say(f"{backend}: {proved.headline}")
    if found.hands:
        raise typer.Exit(2)
    raise typer.Exit(1 if differs else 0)


def drawn(texts: list[str]) -> Any:
    """Return batches of three samples of these forms, by position or by name.

    Raises:
        SettingError: One is no shape, nor ``ints:LENGTH:BELOW``; or one alone has a name.
    """
    import numpy as np

    arrays = {}
    for number, text in enumerate(texts):
        name, _, form = text.rpartition("=")
        generator = np.random.default_rng(number)
        arrays[name or number] = _entry(form).draw(generator, 3)
    if len({*map(type, arrays)}) > 1:
        raise SettingError(f"--input {' '.join(texts)}: name all of them, or none")
    return arrays if isinstance(next(iter(arrays)), str) else tuple(arrays.values())


def _entry(text: str) -> Any:
    from deliralike.zoo.inputs import Input

    if not text.startswith("ints:"):
        return Input(shape_of(text) or ())
    _, sizes, below = [*text.split(":"), "", ""][:3]
    if not below.isdigit():
        raise SettingError(f"--input {text!r}: wanted whole numbers as ints:16:50000")
    shape = shape_of(sizes) if sizes else None  # none: a number for each sample
    return Input(shape or (), int(below))
