"""An epoch of a small network as a user would write it in plain Chainer."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


def training_epoch(inputs: np.ndarray, labels: np.ndarray, batch: int, hidden: int, lr: float, momentum: float):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    network = chainer.Sequential(L.Linear(inputs[0].size, hidden), F.relu, L.Linear(hidden, 10))
    optimizer = chainer.optimizers.MomentumSGD(lr=lr, momentum=momentum).setup(network)
    rng = np.random.default_rng(0)
    labels = labels.astype(np.int32)

    def epoch():
        order = rng.permutation(len(inputs))
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            loss = F.softmax_cross_entropy(network(inputs[chosen]), labels[chosen])
            network.cleargrads()
            loss.backward()
            optimizer.update()
            value = float(loss.array)
        return value

    return epoch
