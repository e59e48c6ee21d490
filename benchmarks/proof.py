"""The cost of a proof: ResNet-50 on every backend in float64 against one pass of the slowest.

A pass is one forward and one backward.

Each backend runs in a process of its own, so that memory is its own. A layer deep in the network
has another epsilon, so that the comparison climbs to the place: structure, semantics in both modes,
every layer judged alone, explained.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.timing import Ratio

BATCH, SIZE = 2, 224
TIMES, MEMORY = 10.0, 4e9
MISTAKEN = "layer4.1.bn2"


def run() -> list[Ratio]:
    """Return the comparisons' time over one pass of the slowest backend, and the most memory."""
    names = ("torch", "chainer", "jax")
    passes = {name: _in_process("pass", name)["seconds"] for name in names}
    proofs = {name: _in_process("proof", name) for name in names}
    slowest = max(passes.values())
    total = sum(found["seconds"] for found in proofs.values())
    ratio = total / slowest
    return [
        Ratio(
            "a mistake in ResNet-50 found on three backends, one pass",
            total,
            slowest,
            ratio,
            ratio,
            ratio,
            TIMES,
        ),
        *(_memory(name, found["bytes"]) for name, found in proofs.items()),
    ]


def _memory(name: str, peak: float) -> Ratio:
    share = peak / MEMORY
    return Ratio(
        f"memory of it with {name}, allowed",
        peak,
        MEMORY,
        share,
        share,
        share,
        1.0,
        "bytes",
    )


def _in_process(what: str, name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.proof", what, name]
    return json.loads(
        subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.splitlines()[-1]
    )


def _batch() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((BATCH, 3, SIZE, SIZE)), random.integers(
        0, 1000, BATCH
    )


def _network(name: str):
    from deliralike import zoo

    return zoo.build("resnet50", backend=name, dtype="float64")


def _pass(name: str) -> None:
    """Make one forward and backward pass as a comparison does, compiled where possible."""
    from deliralike.training import classification_loss

    network = _network(name)
    with network.training_mode(True):
        network.backend.gradients(classification_loss, network, *_batch())


def _proof(name: str) -> None:
    from deliralike.conformance import compare

    reference, candidate = _network("torch"), _network(name)
    dict(candidate.named_blocks())[MISTAKEN].eps = 2e-5
    proof = compare(reference, candidate, _batch(), levels=("L0", "L1", "L3"))
    finding = proof.findings[0]
    assert finding.place == MISTAKEN, str(proof)
    assert "2e-05" in finding.explanation.cause, str(proof)


if __name__ == "__main__":
    start = time.perf_counter()
    {"pass": _pass, "proof": _proof}[sys.argv[1]](sys.argv[2])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": time.perf_counter() - start, "bytes": peak}))
