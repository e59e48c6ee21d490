"""Write the table of the zoo from the registrations of its families: ``make table``."""

import importlib
import pkgutil
from pathlib import Path

from deliralike import zoo
from deliralike.zoo import (
    classification,
    generative,
    multimodal,
    registry,
    segmentation,
    sequences,
    table,
)
from deliralike.zoo.summary import described

PATH = Path(zoo.__file__).with_name("table.csv")
TASKS = (classification, generative, multimodal, segmentation, sequences)


def families():
    """Import every module of the zoo that may register architectures."""
    for package in TASKS:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def registered():
    """Return the architectures of the package: by family, in order of registration in each."""
    families()
    ours = []
    for architecture in registry._architectures.values():
        if architecture.network.__module__.startswith("deliralike."):
            ours.append(architecture)
    return sorted(
        ours, key=lambda each: each.network.__module__
    )  # stable: in order of registration


def written():
    """Return the text of the file."""
    return table.written(map(described, registered()))


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")
