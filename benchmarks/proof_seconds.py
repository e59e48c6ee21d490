"""Seconds of the processor in which networks of common shapes are proved against PyTorch.

``python -m benchmarks proof_seconds`` compares each in a process of its own, on every level, with
what is wanted on two quiet cores. Imports and the making of networks are not counted; programs
that JAX compiles are. ``python -m benchmarks.proof_seconds lenet`` is one of them.
"""

import json
import subprocess
import sys
import time

import numpy as np

from benchmarks.timing import Ratio

# network of the zoo, pixels, the candidate's backend, seconds
WANTED = {
    "lenet": ("lenet", 28, "jax", 6.0),
    "squeezenet": ("squeezenet1_1", 32, "jax", 30.0),
    "mobilenet_v3": ("mobilenet_v3_small", 32, "jax", 30.0),
    "resnet8": ("resnet8", 32, "jax", 30.0),
    "mobilenet_v2": ("mobilenet_v2", 32, "jax", 30.0),
    "resnet18": ("resnet18", 32, "jax", 30.0),
    "googlenet": ("googlenet", 64, "jax", 90.0),
    "wide_resnet": ("wide_resnet50_2", 32, "jax", 90.0),
    "torch": ("resnet18", 32, "torch", 3.0),
    "resnet50": ("resnet50", 224, "torch", 120.0),
}
SAMPLES = 4
GRAY = ("lenet", "resnet8")  # networks of one channel
SETTINGS = {
    "googlenet": {"aux_logits": False}
}  # whose outputs are one array in training, too


def run() -> list[Ratio]:
    """Return the seconds of each, against what is wanted."""
    found = []
    for name, (network, size, backend, wanted) in WANTED.items():
        command = [sys.executable, "-m", "benchmarks.proof_seconds", name]
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
        seconds = json.loads(printed.splitlines()[-1])
        ratio = seconds / wanted
        title = f"{network} of {size} pixels on {backend} proved, wanted"
        found.append(Ratio(title, seconds, wanted, ratio, ratio, ratio, 1.0))
    return found


def proved(name: str) -> float:
    """Compare one network; return the seconds of the processor."""
    from deliralike import zoo
    from deliralike.conformance import compare

    network, size, backend, _ = WANTED[name]
    settings = SETTINGS.get(network, {})
    sides = [
        zoo.build(network, backend=one, seed=0, **settings)
        for one in ("torch", backend)
    ]
    generator = np.random.default_rng(0)
    channels = 1 if network in GRAY else 3
    shape = SAMPLES, channels, size, size
    batch = generator.standard_normal(shape), generator.integers(0, 10, SAMPLES)
    start = time.process_time()
    proof = compare(*sides, batch, weights="load")
    seconds = time.process_time() - start
    assert proof.proved, str(proof)
    return seconds


if __name__ == "__main__":
    print(json.dumps(proved(sys.argv[1])))
