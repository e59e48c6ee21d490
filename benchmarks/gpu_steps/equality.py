"""The same networks on the host and on the device: outputs, loss and gradients of a training pass.

The reference is the host in float64; start values and inputs are the same everywhere.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from benchmarks.gpu_steps import NotRun, Record, device_of, host_of
from deliralike import backends, zoo


@dataclass(frozen=True)
class Case:
    """A small network of the zoo and its batch."""

    network: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    whole: int = 0  # inputs are whole numbers below this
    classes: int = 10

    @property
    def title(self) -> str:
        return self.network + (" 3D" if self.settings.get("dims") == 3 else "")

    def built(self, backend: Any, device: str, dtype: str) -> Any:
        """Return the network with its start values."""
        network = zoo.build(
            self.network, backend=backend, device=device, dtype=dtype, **self.settings
        )
        return network.train()

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels, those of every voxel for a network that segments."""
        rng = np.random.default_rng(7)
        if self.whole:
            inputs = rng.integers(0, self.whole, self.shape)
        else:
            inputs = rng.standard_normal(self.shape)
        is_dense = self.network == "unet"
        size = (self.shape[0], *self.shape[2:]) if is_dense else self.shape[:1]
        return inputs, rng.integers(0, 2 if is_dense else self.classes, size)


CASES = (
    Case("resnet18", {"num_classes": 10}, (4, 3, 64, 64)),
    Case(
        "vit_b_16",
        {
            "num_classes": 10,
            "image_size": 48,
            "num_layers": 3,
            "hidden_dim": 96,
            "num_heads": 4,
            "mlp_dim": 192,
        },
        (4, 3, 48, 48),
    ),
    Case("unet", {"dims": 3, "features": (8, 8, 16, 16, 32, 8)}, (2, 1, 32, 32, 32)),
    Case(
        "convnext_tiny",
        {"layers": (1, 1, 2, 1), "widths": (16, 32, 48, 64), "num_classes": 10}
        | {"stochastic_depth": 0.0, "layer_scale": 1.0},
        (4, 3, 64, 64),
    ),
    Case(
        "lstm_classifier",
        {"vocab_size": 50, "num_classes": 10, "hidden_size": 24, "bidirectional": True},
        (5, 11),
        whole=50,
    ),
)


def loss_of(network: Any, inputs: Any, labels: Any) -> Any:
    """Return the loss, and the outputs beside it."""
    outputs = network(inputs)
    return network.nn.cross_entropy(outputs, labels), outputs


def on_device(kind: str, name: str) -> Iterator[Record]:
    """Compare float64, and float32 with TF32 off and on."""
    settings = [("float64", False), ("float32", False)]
    if name != "chainer":  # whose setting is that of a process
        settings.append(("float32", True))
    yield from _compared(kind, name, settings)


def with_tf32(kind: str, name: str) -> Iterator[Record]:
    """Compare float32 with TF32, which CuPy takes from an environment variable."""
    yield from _compared(kind, name, [("float32", True)])


def _compared(
    kind: str, name: str, settings: list[tuple[str, bool]]
) -> Iterator[Record]:
    backend = backends.get(name)
    device, host = device_of(backend, kind), host_of(backend)
    for case in CASES:
        try:
            reference = _computed(case, backend, host, "float64")
            for dtype, has_tf32 in settings:
                with tf32(backend, has_tf32):
                    results = _computed(case, backend, device, dtype)
                yield {
                    "network": case.title,
                    "dtype": dtype + (", TF32" if has_tf32 else ""),
                    "outputs": far(results[0], reference[0]),
                    "gradients": far(results[1], reference[1]),
                    "worst gradient": _worst(results[1], reference[1]),
                }
        except Exception as error:  # noqa: BLE001 (the other networks are wanted)
            yield {
                "network": case.title,
                "failed": f"{type(error).__name__}: {error}"[:1500],
            }


def _computed(
    case: Case, backend: Any, device: str, dtype: str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return outputs and loss, and gradients, by name."""
    network = case.built(backend, device, dtype)
    inputs, labels = case.batch()
    x = backend.array(inputs, dtype=None if case.whole else dtype, device=device)
    y = backend.array(labels, device=device)
    result = backend.gradients(loss_of, network, x, y)
    gradients = {
        name: value for name, value in result.parameters.items() if value is not None
    }
    if not case.whole:
        gradients["the inputs"] = result.inputs[0]
    return {
        "outputs": np.asarray(result.beside[0]),
        "loss": np.asarray(result.loss),
    }, gradients


def far(found: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """Return the distance of all arrays together, relative to the length of the reference."""
    if found.keys() != reference.keys():
        raise ValueError(f"other names: {sorted(found.keys() ^ reference.keys())}")
    squares = [
        (
            float(np.sum((found[name].astype(np.float64) - value) ** 2)),
            float(np.sum(value**2)),
        )
        for name, value in reference.items()
    ]
    difference, length = map(sum, zip(*squares, strict=True))
    return float(np.sqrt(difference / length))


def _worst(
    found: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]
) -> list[Any]:
    """Return the largest distance of one array relative to itself, and its name.

    An array that is nearly zero beside the others does not count.
    """
    floor = 1e-6 * max(float(np.linalg.norm(value)) for value in reference.values())
    errors = {
        name: float(np.linalg.norm(found[name] - value) / np.linalg.norm(value))
        for name, value in reference.items()
        if np.linalg.norm(value) > floor
    }
    name = max(errors, key=errors.__getitem__)
    return [errors[name], name]


@contextmanager
def tf32(backend: Any, switch: bool) -> Iterator[None]:
    """Let products of float32 use TF32, or not."""
    if backend.name == "torch":
        import torch

        torch.set_float32_matmul_precision("high" if switch else "highest")
        torch.backends.cudnn.allow_tf32 = switch
        yield
    elif backend.name == "jax":
        import jax

        with jax.default_matmul_precision("tensorfloat32" if switch else "highest"):
            yield
    else:
        yield


def tests(kind: str) -> Iterator[Record]:
    """Run the tests that are marked `gpu`."""
    if kind != "gpu":
        raise NotRun("they need a GPU")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rfEs",
            "-m",
            "gpu",
            "-W",
            "default",
        ]
        command += [
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            "tests/nn/test_devices.py",
        ]
        environment = os.environ | {"DELIRALIKE_TEST_XLA": "full"}
        done = subprocess.run(command, stdout=sys.stderr, env=environment, check=False)
        yield {"exit": done.returncode}
        if not report.exists():
            return
        for case in ElementTree.parse(report).iter("testcase"):
            result = next(
                (each.tag for each in case if each.tag != "properties"), "passed"
            )
            record = {"test": case.get("name"), "result": result}
            if result in ("failure", "error"):
                record["message"] = (case[0].get("message") or "")[:1500]
            yield record
