"""A classifier as MMEngine's first tutorial has it: a model with modes, an accuracy, and a
runner."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

# was: from mmengine.evaluator import BaseMetric
# was: from mmengine.model import BaseModel
# was: from mmengine.runner import Runner
# was: from torch.utils.data import DataLoader
from deliralike import in_replicas
from deliralike.data import Loader
from deliralike.optim import rules
from deliralike.training import Trainer


class MMClassifier(torch.nn.Module):  # was: BaseModel
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(
            torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
        )

    def forward(self, imgs, labels=None, mode="tensor"):
        x = self.backbone(imgs)
        if mode == "loss":
            return {"loss": F.cross_entropy(x, labels)}
        if mode == "predict":
            return x, labels
        return x

    def train_step(
        self, data, optim_wrapper
    ):  # BaseModel's own does the same from mode="loss"
        return {"loss": optim_wrapper["default"].update(in_replicas(loss_of), *data)}

    def val_step(self, data):
        return self(*data, mode="predict")

    test_step = val_step


def loss_of(model, imgs, labels):
    return model(imgs, labels, mode="loss")["loss"]


def accuracy(scores, labels):  # was: a BaseMetric with process and compute_metrics
    return float((scores.argmax(1) == labels).mean())


def loaders():
    bunch = load_digits()
    pixels, labels = bunch.data / 16, bunch.target
    train, validation = (pixels[:200], labels[:200]), (pixels[200:300], labels[200:300])
    return Loader(train, 32, shuffle=True), Loader(validation, 32, shuffle=False)


def main(devices=None):
    torch.manual_seed(2)
    model = MMClassifier().double()
    train_dataloader, val_dataloader = loaders()
    # was: Runner(model=…, optim_wrapper=dict(optimizer=dict(type=SGD, lr=0.1, momentum=0.9)), …)
    runner = Trainer(
        model,
        rules.rule("sgd", lr=0.1, momentum=0.9),
        metrics={"accuracy": accuracy},
        devices=devices,
    )
    history = runner.fit(train_dataloader, val_dataloader, epochs=2)
    return model, runner, history


if __name__ == "__main__":
    print(main()[2].epochs)
