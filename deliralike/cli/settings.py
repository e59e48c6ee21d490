"""``deliralike settings``: a file of settings to start from, with the effect of each of them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from deliralike.cli.options import Pairs, key_values, settings_option


def command(
    network: Annotated[
        str,
        typer.Argument(
            help="A network of the zoo: see 'deliralike zoo'; or yours: file.py:Net."
        ),
    ] = "resnet8",
    set_: Annotated[
        Pairs, settings_option("Another value: data=photos/, optimizer.lr=0.1.")
    ] = None,
) -> None:
    """Print a file of all settings as TOML, with what they do.

    Try: deliralike settings resnet8 > settings.toml.
    """
    from deliralike.training.experiment import as_toml
    from deliralike.training.experiment.files import changed, settings_from

    changes = spread(key_values(set_ or (), "--set"))
    settings = settings_from(changed({"network": network}, changes))
    print(as_toml(settings), end="")


def spread(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``--set`` by the keys of the settings.

    ``optimizer.lr`` stands in ``optimizer_settings``. A name that is no setting is one of the
    network's.

    Example:
        >>> spread({"epochs": 3, "optimizer.lr": 0.1, "depth": 14})
        {'epochs': 3, 'optimizer_settings.lr': 0.1, 'network_settings.depth': 14}
    """
    from deliralike.training.experiment.settings import names

    known = names()
    return {_key(key, known): value for key, value in values.items()}


def _key(key: str, names: list[str]) -> str:
    head, dot, rest = key.partition(".")
    if head not in names:
        return f"network_settings.{key}"
    group = f"{head}_settings"
    if dot and group in names:
        return f"{group}.{rest}"
    return key
