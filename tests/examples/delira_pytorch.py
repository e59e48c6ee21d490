"""A network of delira's on PyTorch, with a closure and prepare_batch of its own, as delira's
documentation has them."""

import numpy as np
import torch
from sklearn.datasets import load_digits

# was: from delira.models.backends.torch import AbstractPyTorchNetwork, DataParallelPyTorchNetwork
from deliralike.backends.torch import (
    AbstractPyTorchNetwork,
    DataParallelPyTorchNetwork,
    DataParallelTorchOptimizer,
)


class SmallClassifier(AbstractPyTorchNetwork):
    def __init__(self, in_channels, n_outputs):
        super().__init__(in_channels=in_channels, n_outputs=n_outputs)
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(in_channels, 6, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        )
        self.head = torch.nn.Linear(6 * 3 * 3, n_outputs)

    def forward(self, images):
        return {"pred": self.head(self.features(images).flatten(1))}

    @staticmethod
    def prepare_batch(batch, input_device, output_device):
        moved = {"data": torch.from_numpy(batch["data"]).to(input_device).double()}
        for key, value in batch.items():
            if key != "data":
                moved[key] = torch.from_numpy(value).to(output_device).long()
        return moved

    @staticmethod
    def closure(model, data_dict, optimizers, losses={}, metrics={}, fold=0, **kwargs):
        loss_vals, metric_vals, total_loss = {}, {}, 0
        with torch.enable_grad() if optimizers else torch.no_grad():
            preds = model(data_dict["data"])
            for key, criterion in losses.items():
                value = criterion(preds["pred"], data_dict["label"])
                loss_vals[key] = value.item()
                total_loss = total_loss + value
        for key, metric in metrics.items():
            metric_vals[key] = metric(preds["pred"].detach(), data_dict["label"]).item()
        if optimizers:
            optimizers["default"].zero_grad()
            total_loss.backward()
            optimizers["default"].step()
        return (
            metric_vals,
            loss_vals,
            {key: value.detach() for key, value in preds.items()},
        )


def accuracy(prediction, label):
    return (prediction.argmax(1) == label).double().mean()


def batches(size=31, count=4):
    bunch = load_digits()
    for begin in range(0, size * count, size):
        rows = slice(begin, begin + size)
        yield {
            "data": bunch.images[rows, None].astype(np.float32) / 16,
            "label": bunch.target[rows],
        }


def main(devices):
    torch.manual_seed(5)
    network = SmallClassifier(in_channels=1, n_outputs=10).double()
    if len(devices) > 1:
        network = DataParallelPyTorchNetwork(network, devices)
    optimizer = DataParallelTorchOptimizer.from_optimizer_class(
        torch.optim.Adam, network, lr=0.01
    )
    losses, metrics = {"ce": torch.nn.CrossEntropyLoss()}, {"accuracy": accuracy}
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
    print([losses for _, losses, _ in main(["cpu", "cpu"])[1]])
