"""Train one network on the handwritten digits on PyTorch and on MLX, and compare their losses."""

import time

import numpy as np

from deliralike import data, rules, zoo
from deliralike.training import Trainer

EPOCHS = 3


def train(backend: str, dtype: str) -> tuple[np.ndarray, float]:
    """Return the loss of each step of a run, and the accuracy on the digits held out."""
    digits = data.load("digits")
    network = zoo.build("resnet8", backend=backend, dtype=dtype, seed=0)
    rule = rules.rule("adam", lr=0.01)
    trainer = Trainer(network, rule, metrics=["accuracy"], seed=0)
    history = trainer.fit(digits.train, digits.held_out, epochs=EPOCHS, batch_size=64)
    return np.array(history.losses), history.held_out("accuracy")[-1]


def main() -> None:
    """Print the runs, and how far apart they are."""
    for dtype in ("float64", "float32"):
        losses = {}
        for backend in ("torch", "mlx"):
            begin = time.perf_counter()
            losses[backend], accuracy = train(backend, dtype)
            first, *_, last = losses[backend]
            seconds = time.perf_counter() - begin
            print(
                f"{dtype} {backend:5} {len(losses[backend])} steps, loss {first:.6f} to "
                f"{last:.6f}, accuracy {accuracy:.4f}, {seconds:.1f} s"
            )
        apart = np.abs(losses["mlx"] / losses["torch"] - 1)
        print(
            f"{dtype} losses differ by at most {apart.max():.1e}, in the first 10 steps by "
            f"{apart[:10].max():.1e}"
        )


if __name__ == "__main__":
    main()
