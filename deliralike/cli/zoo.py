"""``deliralike zoo``: the architectures, or one of them in detail. No framework is loaded."""

from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.cli.console import console, say, show_table
from deliralike.cli.options import Pairs, key_values, settings_option
from deliralike.errors import SettingError, UnknownName

_WIDE = 120  # the columns of a terminal in which tables show everything


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="One architecture; a pattern like 'resnet*' lists those."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="CxHxW",
            help="One sample's shape, 3x224x224. (default: its own)",
        ),
    ] = None,
    set_: Annotated[
        Pairs, settings_option("A setting of NAME: num_classes=10.")
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(
            "--draw", metavar="FILE", help="Draw NAME into a file: .svg, .png or .pdf."
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            help="How deep to look into blocks when drawing. (default: as fits)",
        ),
    ] = None,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights", help="List the published weights instead, of NAME or all."
        ),
    ] = False,
) -> None:
    """List the architectures with parameters and shapes; with NAME: settings, layers and source.

    With --weights: the published weights.
    """
    from deliralike import zoo

    if weights:
        _weights(name or "*")
        return
    if name is None or set(name) & set("*?["):
        if draw is not None:
            raise SettingError(
                "--draw wants the name of one architecture: deliralike zoo NAME --draw FILE"
            )
        names = zoo.list(name or "*")
        if not names:
            raise UnknownName(
                f"no network of the zoo matches {name!r}: deliralike zoo lists all"
            )
        _list(names)
        return
    shape = shape_of(size)
    settings = key_values(set_ or (), "--set")
    if draw is not None:
        from deliralike.zoo.drawing import draw as write_drawing

        write_drawing(name, draw, shape, depth, **settings)
        say(f"{draw}: {name}")
    else:
        _detail(name, shape, settings)


def _list(names: tuple[str, ...]) -> None:
    from deliralike import zoo
    from deliralike.zoo import table
    from deliralike.zoo.summary import described

    ours = table.rows()
    rows: list[tuple[str, ...]] = []
    for name in names:
        row = ours.get(name) or described(zoo.find(name))
        shapes = ", ".join(map(_input, row.inputs))
        rows.append((name, f"{row.parameters:,}", shapes, row.task))
    columns = ["network", "parameters", "input", "task"]
    show_table(columns, rows, right=["parameters"])
    say("Shapes of one sample, channels first. More: deliralike zoo NAME")


def _weights(name: str) -> None:
    from deliralike import zoo

    if not set(name) & set("*?["):
        zoo.find(name)  # names the nearest if there is none
    table = zoo.weights(name)
    if not table:
        say(f"nobody is known to have published weights of {name}")
        return
    columns = list(table.COLUMNS)
    rows = [dict(zip(columns, row, strict=True)) for row in table.rows()]
    if len(table.names) == sum(row["architecture"] == name for row in rows):
        columns.remove("architecture")
    if console().width < _WIDE:
        columns.remove("preprocessing")
        say(f"The preprocessing is shown in a terminal of at least {_WIDE} columns.")
    cells = [[row[column] for column in columns] for row in rows]
    show_table(columns, cells, right=["classes", "size"])
    say(
        "The star marks weights='pretrained'. All is as the publishers' libraries state it."
    )


def _detail(name: str, shape: tuple[int, ...] | None, settings: dict[str, Any]) -> None:
    from deliralike import zoo

    architecture = zoo.find(name)
    outline = zoo.outline(name, shape, **settings)
    say(f"{name}: {architecture.task}", "bold")
    say(f"source: {architecture.source}")
    published = zoo.weights(name)
    if published:
        say(f"published weights: {len(published)}, see deliralike zoo {name} --weights")
    values = {**architecture.settings, **settings}
    show_table(
        ["setting", "value"], zip(values, map(repr, values.values()), strict=True)
    )
    say(str(outline))


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """Read a shape such as ``3x224x224``."""
    if text is None:
        return None
    sizes = text.lower().replace(",", "x").split("x")
    try:
        return tuple(map(int, sizes))
    except ValueError:
        raise SettingError(
            f"--input {text!r}: wanted whole numbers like 3x224x224"
        ) from None


def _input(entry: Any) -> str:
    """Return the shape of an input; of whole numbers also their range."""
    sizes = "x".join(map(str, entry.shape)) or "scalar"
    if entry.below is None:
        return sizes
    return f"{sizes} (0 to {entry.below - 1})"
