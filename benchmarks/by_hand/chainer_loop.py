"""An epoch of small networks as a user would write it in plain Chainer."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class LeNet(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1, self.conv2 = (
                L.Convolution2D(1, 6, 5, pad=2),
                L.Convolution2D(6, 16, 5),
            )
            self.fc1, self.fc2, self.fc3 = (
                L.Linear(400, 120),
                L.Linear(120, 84),
                L.Linear(84, 10),
            )

    def forward(self, x):
        x = F.max_pooling_2d(F.relu(self.conv1(x)), 2)
        x = F.max_pooling_2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def training_epoch(
    kind: str,
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    mlp = chainer.Sequential(
        L.Linear(inputs[0].size, hidden), F.relu, L.Linear(hidden, 10)
    )
    network = LeNet() if kind == "lenet" else mlp
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
