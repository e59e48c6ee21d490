"""A network of delira's on Chainer over replicas, with a closure and prepare_batch of its own."""

import numpy as np
from sklearn.datasets import load_digits

# was: from delira.models.backends.chainer import AbstractChainerNetwork
# was: from delira.models.backends.chainer import DataParallelChainerNetwork,
# DataParallelChainerOptimizer
from deliralike.backends.chainer import (
    AbstractChainerNetwork,
    DataParallelChainerNetwork,
    DataParallelChainerOptimizer,
)

# isort: split
import chainer  # after the package, with which Chainer works on NumPy 2
import chainer.functions as F
import chainer.links as L


class SmallClassifier(AbstractChainerNetwork):
    def __init__(self, in_channels, n_outputs):
        super().__init__(in_channels=in_channels, n_outputs=n_outputs)
        with self.init_scope():
            self.conv = L.Convolution2D(in_channels, 6, 3)
            self.head = L.Linear(6 * 3 * 3, n_outputs)

    def forward(self, images):
        return {"pred": self.head(F.max_pooling_2d(F.relu(self.conv(images)), 2))}

    @staticmethod
    def prepare_batch(batch, input_device, output_device):
        moved = {"data": input_device.send(batch["data"].astype(chainer.config.dtype))}
        for key, value in batch.items():
            if key != "data":
                moved[key] = output_device.send(value.astype(np.int32))
        return moved

    @staticmethod
    def closure(model, data_dict, optimizers, losses={}, metrics={}, fold=0, **kwargs):
        loss_vals, metric_vals, total_loss = {}, {}, 0
        with chainer.using_config("train", bool(optimizers)):
            preds = model(data_dict["data"])
            for key, criterion in losses.items():
                value = criterion(preds["pred"], data_dict["label"])
                loss_vals[key] = value.item()
                total_loss = total_loss + value
        for key, metric in metrics.items():
            metric_vals[key] = metric(preds["pred"], data_dict["label"]).item()
        if optimizers:
            model.cleargrads()
            total_loss.backward()
            optimizers["default"].update()
        for value in preds.values():
            value.unchain()
        return metric_vals, loss_vals, preds


def batches(size=31, count=4):
    bunch = load_digits()
    for begin in range(0, size * count, size):
        rows = slice(begin, begin + size)
        yield {"data": bunch.images[rows, None] / 16, "label": bunch.target[rows]}


def main(devices):
    np.random.seed(5)
    network = SmallClassifier(in_channels=1, n_outputs=10)
    devices = [chainer.get_device(device) for device in devices]
    if len(devices) > 1:
        network = DataParallelChainerNetwork(network, devices=devices)
    optimizer = DataParallelChainerOptimizer.from_optimizer_class(
        chainer.optimizers.Adam, alpha=0.01
    )
    optimizer.setup(network)
    losses, metrics = {"ce": F.softmax_cross_entropy}, {"accuracy": F.accuracy}
    history = []
    for batch in batches():
        data = network.prepare_batch(batch, devices[0], devices[0])
        history.append(
            network.closure(
                network,
                data,
                {"default": optimizer},
                losses=losses,
                metrics=metrics,
                fold=0,
            )
        )
    return network, history


if __name__ == "__main__":
    print([losses for _, losses, _ in main(["@numpy", "@numpy"])[1]])
