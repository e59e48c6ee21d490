"""The ten ports of ``docs/gallery/ports``, written anew by ``python -m tests.port.gallery``."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

from deliralike import backends, port

FOLDER = Path(__file__).parents[2] / "docs" / "gallery" / "ports"
#: For each file the class, its arguments, and what it is called with: shapes, or words below 50.
NETWORKS = {
    "residual": ("Residual", {"classes": 5}, [(3, 3, 33, 33)]),
    "inverted": ("Mobile", {"classes": 5}, [(3, 3, 33, 33)]),
    "dense": ("Dense", {"classes": 5}, [(3, 3, 17, 17)]),
    "unet": ("UNet", {"classes": 3}, [(3, 3, 19, 21)]),
    "patches": ("Patches", {"side": 12, "patch": 3, "classes": 5}, [(3, 3, 12, 12)]),
    "windows": ("Windows", {}, [(3, 3, 18, 18)]),
    "language": ("Language", {}, [(3, 7), (3, 7)]),
    "tagger": ("Tagger", {"words": 50, "tags": 4}, [(3, 7)]),
    "wave": ("Wave", {}, [(3, 1, 33)]),
    "generator": ("Generator", {"latent": 5}, [(3, 5)]),
}
OF_WORDS = ("language", "tagger")


def ported(name):
    """The port of the class in ``before``."""
    backends.get("chainer")  # which lets Chainer run on today's NumPy
    file = FOLDER / "before" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"before.{name}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where `port` reads its source
    spec.loader.exec_module(module)
    class_name, arguments, shapes = NETWORKS[name]
    if name == "language":
        arguments = {"settings": module.Settings()}
    rng = np.random.default_rng(0)
    if name in OF_WORDS:
        inputs = [rng.integers(0, 50, shape) for shape in shapes]
    else:
        inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return port(getattr(module, class_name), tuple(inputs), **arguments)


def formatted(source):
    """A source as the project's formatter has it, with its imports in order."""
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--select", "I", "--fix-only", "-q"], ["format", "-q"]):
        command = [*ruff, *words, "--isolated", "--line-length", "88", "-"]
        source = subprocess.run(
            command, input=source, capture_output=True, text=True
        ).stdout
    return source


def main():
    for name in NETWORKS:
        found = ported(name)
        (FOLDER / "after" / f"{name}.py").write_text(formatted(found.source))
        print(name, *found.hands, *found.left_out, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
