"""Reading and writing the neutral state of a ResNet-50 against a plain copy of the same arrays."""

from benchmarks.timing import Ratio, compare
from deliralike import zoo

BACKENDS = ("torch", "chainer", "jax")


def run() -> list[Ratio]:
    """Two ratios for each backend."""
    return [ratio for name in BACKENDS for ratio in _one(name)]


def _one(name: str) -> list[Ratio]:
    network = zoo.build("resnet50", backend=name)
    state = network.neutral_state()

    def copy() -> dict:
        return {key: value.copy() for key, value in state.items()}

    return [
        compare(
            f"read the state, {name}, copy of the arrays", network.neutral_state, copy
        ),
        compare(
            f"load the state, {name}, copy of the arrays",
            lambda: network.load_neutral_state(state),
            copy,
        ),
    ]
