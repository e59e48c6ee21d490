"""The formats that the package reads: files to damage, our reader, and the framework's own strict
one beside it."""

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import safetensors.numpy
import torch

from deliralike import backends, weights
from deliralike.training import checkpoint
from deliralike.training.callbacks.checkpoint import Checkpoints
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.files import as_toml, read_settings
from deliralike.training.experiment.settings import Settings
from tests.fuzz.mutations import Files

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Format:
    """What is damaged and how it is read.

    Attributes:
        samples: Whole files, by their names in a folder.
        target: What in the folder our reader is given; empty for the folder itself.
        read: Ours. What it gives is compared with `strict` if it is a dict of arrays.
        strict: The framework's own reader.
        by_name: Whether both use the same names and layouts; else values are looked for in any
            order.
        memory: Bytes that reading may take beyond what the imports have taken.
        seconds: Of the processor that reading a file may take; a busy machine counts up to twice as
            many.
        refuses: Whether any file that is read is a finding.
    """

    samples: Callable[[], list[Files]]
    target: str
    read: Callable[[Path], Any]
    strict: Callable[[Path], Arrays] | None = None
    by_name: bool = True
    memory: int = 2**30
    seconds: int = 10
    refuses: bool = False


def _state() -> Arrays:
    rng = np.random.default_rng(7)
    return {
        "conv.weight": rng.standard_normal((3, 2, 3, 3)).astype(np.float32),
        "conv.bias": rng.standard_normal(3),
        "bn.num_batches_tracked": np.array(12),
        "bn.mask": np.array([True, False, True]),
        "fc.weight": rng.standard_normal((4, 3)).astype(np.float16),
    }


def _written(name: str, write: Callable[[Path], Any]) -> Files:
    """What a function writes under a name in a folder: a file, or a folder with all that is in
    it."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# PyTorch
# -----------------------------------------------------------------------------


def _torch_samples(new_format: bool) -> list[Files]:
    state = {name: torch.from_numpy(array) for name, array in _state().items()}
    base = torch.arange(24.0)
    views = {
        "a": base.view(4, 6).t(),
        "b": base[3:9],
        "half": base.bfloat16(),
        "p": torch.nn.Parameter(base[:2]),
    }
    beside = {
        "state_dict": state,
        "best": np.float64(0.5),
        "epoch": 3,
        "optimizer": {"state": {0: {"step": 1}}},
    }

    def write(value: Any) -> Files:
        return _written(
            "x",
            lambda path: torch.save(
                value, path, _use_new_zipfile_serialization=new_format
            ),
        )

    return [write(state), write(views), write(beside)]


# What the third sample holds beside the weights; plain PyTorch refuses it unless it is told.
_OF_NUMPY = [np._core.multiarray.scalar, np.dtype, type(np.dtype("f8"))]


def _torch_strict(path: Path) -> Arrays:
    with (
        warnings.catch_warnings(),
        torch.serialization.safe_globals(_OF_NUMPY),
        path.open("rb") as file,
    ):
        warnings.simplefilter("ignore")
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    state = (
        loaded["state_dict"] if isinstance(loaded.get("state_dict"), dict) else loaded
    )
    return {
        name: tensor.detach().float().numpy()
        if tensor.dtype == torch.bfloat16
        else tensor.detach().numpy()
        for name, tensor in state.items()
    }


# NumPy, Chainer, safetensors
# -----------------------------------------------------------------------------


def _numpy_samples() -> list[Files]:
    samples = []
    for save in (np.savez, np.savez_compressed):
        written = io.BytesIO()
        save(written, **_state())
        samples.append({"x": written.getvalue()})
    return samples


def _chainer_samples() -> list[Files]:
    names = ["conv/W", "conv/b", "bn/gamma", "bn/avg_mean", "bn/N"]
    arrays = dict(zip(names, _state().values(), strict=True))
    snapshot = {f"updater/model:main/{name}": array for name, array in arrays.items()}
    samples = []
    for content in (arrays, snapshot | {"updater/iteration": np.array(7)}):
        written = io.BytesIO()
        np.savez_compressed(written, **content)
        samples.append({"x": written.getvalue()})
    return samples


def _npz_strict(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _safetensors_samples() -> list[Files]:
    return [
        _written(
            "x.safetensors",
            lambda path: weights.write(path, _state()),
        ),
        _written(
            "x.safetensors", lambda path: safetensors.numpy.save_file(_state(), path)
        ),
    ]


def _read_safetensors(path: Path) -> Arrays:
    return weights.read(path)


# Chainer, flax
# -----------------------------------------------------------------------------


def _flax_tree() -> Any:
    rng = np.random.default_rng(5)
    return {
        "params": {
            "conv": {
                "kernel": rng.standard_normal((3, 3, 2, 4)).astype(np.float32),
                "bias": np.ones(4),
            }
        },
        "batch_stats": {
            "bn": {
                "mean": np.zeros(4),
                "var": np.ones(4, np.float32),
                "n": np.float32(3),
            }
        },
    }


def _msgpack_samples() -> list[Files]:
    plain = {
        "fc": {"kernel": np.arange(6.0).reshape(2, 3), "bias": np.ones(3, np.int32)}
    }
    return [
        {"x": flax.serialization.msgpack_serialize(tree)}
        for tree in (_flax_tree(), plain)
    ]


def _msgpack_strict(path: Path) -> Arrays:
    return _leaves(flax.serialization.msgpack_restore(path.read_bytes()))


def _leaves(tree: Any, path: str = "") -> Arrays:
    if not isinstance(tree, dict | list | tuple):
        return {path: np.asarray(tree)}
    found: Arrays = {}
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        found |= _leaves(value, f"{path}/{key}")
    return found


def _orbax_samples() -> list[Files]:
    import orbax.checkpoint as orbax

    def save(path: Path) -> None:
        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
            checkpointer.save(path, _state())

    return [_written("x.orbax", save)]


def _orbax_strict(path: Path) -> Arrays:
    import jax
    import orbax.checkpoint as orbax

    with (
        warnings.catch_warnings(),
        orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer,
    ):
        warnings.simplefilter("ignore")
        described = checkpointer.metadata(path).item_metadata.tree
        arguments = jax.tree.map(
            lambda _: orbax.RestoreArgs(restore_type=np.ndarray), described
        )
        return _leaves(
            checkpointer.restore(
                path, args=orbax.args.PyTreeRestore(restore_args=arguments)
            )
        )


# Checkpoints, settings and the folder of a run
# -----------------------------------------------------------------------------


def _checkpoint_samples() -> list[Files]:
    run = {
        "step": 7,
        "best": float("inf"),
        "pair": (1, None, "x"),
        "slots": [np.arange(3), {"$odd": np.ones((2, 2))}],
    }
    written = _written(
        "x", lambda path: checkpoint.write(path, {"network": _state(), "run": run})
    )
    return [{Path(name).name: content for name, content in written.items()}]


def _read_checkpoint(path: Path) -> Arrays:
    return _arrays_in(checkpoint.read(path))


def _arrays_in(value: Any, path: str = "") -> Arrays:
    if isinstance(value, np.ndarray):
        return {path: value}
    found: Arrays = {}
    if isinstance(value, dict | list | tuple):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            found |= _arrays_in(each, f"{path}/{key}")
    return found


def _checkpoint_strict(path: Path) -> Arrays:
    files = json.loads((path / "state.json").read_bytes())["files"]
    found: Arrays = {}
    for part in files:
        arrays = safetensors.numpy.load_file(path / f"{part}.safetensors")
        found |= {f"{part}/{name}": array for name, array in arrays.items()}
    return found


def _index_samples() -> list[Files]:
    names = ["step-00000002", "step-00000004"]
    files = {f"{name}/state.json": b"{}" for name in names}
    index = {"checkpoints": names, "best": names[0]}
    return [files | {"checkpoints.json": json.dumps(index).encode()}]


def _read_index(path: Path) -> None:
    Checkpoints.all(path)
    Checkpoints.best(path)


def _settings() -> Settings:
    return Settings(
        network="mlp",
        network_settings={"hidden": [64, 32]},
        transforms=["flip", {"name": "noise", "std": 0.1}],
        optimizer_settings={"lr": 0.1},
        clip_norm=1,
        devices=["cpu"],
    )


def _toml_samples() -> list[Files]:
    text = as_toml(_settings())
    bare = "\n".join(
        line for line in text.splitlines() if line and not line.startswith("#")
    )
    return [{"x.toml": bare.encode()}, {"x.toml": text.encode()}]


def _status_samples() -> list[Files]:
    status = run_folder.Status(
        "finished", "", 1.7e9, 12.5, {"accuracy": 0.9, "loss": float("nan")}
    )
    return [
        _written(
            "status.json", lambda path: run_folder.write_status(path.parent, status)
        )
    ]


def _read_status(path: Path) -> None:
    run_folder.read_status(path)


FORMATS = {
    "safetensors": Format(
        _safetensors_samples,
        "x.safetensors",
        _read_safetensors,
        safetensors.numpy.load_file,
    ),
    "pth": Format(lambda: _torch_samples(True), "x", weights.read, _torch_strict),
    "pth-legacy": Format(
        lambda: _torch_samples(False), "x", weights.read, _torch_strict
    ),
    "npz": Format(_numpy_samples, "x", weights.read, _npz_strict),
    "npz-chainer": Format(
        _chainer_samples, "x", weights.read, _npz_strict, by_name=False
    ),
    "msgpack": Format(
        _msgpack_samples, "x", weights.read, _msgpack_strict, by_name=False
    ),
    "orbax": Format(
        _orbax_samples,
        "x.orbax",
        weights.read,
        _orbax_strict,
        by_name=False,
        memory=2**32,
    ),
    "checkpoint": Format(
        _checkpoint_samples, "", _read_checkpoint, _checkpoint_strict, by_name=False
    ),
    "checkpoints-index": Format(_index_samples, "", _read_index),
    "toml": Format(_toml_samples, "x.toml", read_settings),
    "status": Format(_status_samples, "", _read_status),
}


def load_everything() -> None:
    """Import what the readers need, so that children find it there; JAX computes nothing here."""
    for name in ("torch", "chainer", "jax"):
        backends.get(name)
    import orbax.checkpoint  # noqa: F401
