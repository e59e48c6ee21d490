"""``deliralike zoo``: the architectures, or one of them in detail. No framework is loaded."""

from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    name: Annotated[
        str | None, typer.Argument(help="One architecture; a pattern like 'resnet*' lists those.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="CxHxW", help="One sample's shape, 3x224x224. (default: its own)"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of NAME: num_classes=10."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option("--draw", metavar="FILE", help="Draw NAME into a file: .svg, .png or .pdf."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth", help="How deep to look into blocks when drawing. (default: as fits)"
        ),
    ] = None,
) -> None:
    """List the architectures with parameters and shapes; with NAME: settings, layers and source."""
    from deliralike import zoo
    from deliralike.cli.options import key_values
    from deliralike.errors import SettingError

    if name is None or set(name) & set("*?["):
        if draw is not None:
            raise SettingError(
                "--draw wants the name of one architecture: deliralike zoo NAME --draw FILE"
            )
        _list(zoo.list(name or "*"))
    elif draw is not None:
        _draw(name, draw, shape_of(size), depth, key_values(set_ or (), "--set"))
    else:
        _detail(name, shape_of(size), key_values(set_ or (), "--set"))


def _list(names: tuple[str, ...]) -> None:
    from deliralike import zoo
    from deliralike.cli.console import say, show_table
    from deliralike.zoo.summary import count_parameters

    rows = []
    for name in names:
        architecture = zoo.find(name)
        parameters = architecture.parameters or count_parameters(architecture)
        inputs = architecture.inputs_for() if architecture.shape is not None else ()
        shapes = ", ".join(map(_input, inputs))
        dims = ", ".join(map(str, architecture.dims))
        rows.append((name, f"{parameters:,}", shapes, dims, architecture.task))
    show_table(["network", "parameters", "input", "axes", "task"], rows, right=["parameters"])
    say(
        "Shapes of one sample, channels first; axes: numbers of spatial axes. More: deliralike "
        "zoo NAME"
    )


def _detail(name: str, shape: tuple[int, ...] | None, settings: dict[str, Any]) -> None:
    from deliralike import zoo
    from deliralike.cli.console import say, show_table

    architecture = zoo.find(name)
    outline = zoo.outline(name, shape, **settings)
    counts = f"{outline.parameters:,} parameters, {outline.multiply_adds:,} multiply-adds"
    say(f"{name}: {architecture.task}, {counts}", "bold")
    say(f"source: {architecture.source}")
    values = {**architecture.settings, **settings}
    show_table(["setting", "value"], [(key, repr(value)) for key, value in values.items()])
    head = ["layer", "type", "output", "parameters", "multiply-adds"]
    inputs = architecture.inputs_for(**settings) if architecture.shape is not None else ()
    bounds = [entry.below for entry in inputs] + [None] * len(outline.inputs)
    rows = []
    for i, (input_shape, below) in enumerate(zip(outline.inputs, bounds, strict=False)):
        title = f"(input {i})" if len(outline.inputs) > 1 else "(input)"
        rows.append((title, "", _input(zoo.Input(input_shape[1:], below)), "", ""))
    for row in outline.rows:
        counts_of_row = (f"{row.parameters:,}", f"{row.multiply_adds:,}")
        rows.append((row.name or "(itself)", row.type, _nest(row.output), *counts_of_row))
    rows.append(("(output)", "", _nest(outline.output), "", ""))
    show_table(head, rows, right=head[3:])


def _draw(
    name: str,
    path: Path,
    shape: tuple[int, ...] | None,
    depth: int | None,
    settings: dict[str, Any],
) -> None:
    from deliralike.cli.console import say
    from deliralike.zoo.drawing import draw

    draw(name, path, shape, depth, **settings)
    say(f"{path}: {name}")


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """Read a shape such as ``3x224x224``."""
    from deliralike.errors import SettingError

    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.lower().replace(",", "x").split("x"))
    except ValueError:
        raise SettingError(f"--input {text!r}: wanted whole numbers like 3x224x224") from None


def _input(entry: Any) -> str:
    """Return the shape of an input; of whole numbers also their range."""
    sizes = _sizes(entry.shape)
    if entry.below is None:
        return sizes
    return f"{sizes} (0 to {entry.below - 1})"


def _nest(output: Any) -> str:
    """Return the shapes of a layer's outputs, without the batch."""
    if isinstance(output, dict):
        return ", ".join(f"{name}: {_nest(part)}" for name, part in output.items())
    if not isinstance(output, tuple | list):
        return str(output)
    if output and all(isinstance(size, int) for size in output):
        return _sizes(tuple(output[1:]))
    parts = []
    for part in output:
        text = _nest(part)
        parts.append(f"({text})" if isinstance(part, list | dict) else text)
    return ", ".join(parts)


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
