"""Batch normalisation over all devices, by PyTorch's conversion and by the package
Synchronized-BatchNorm-PyTorch."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

# was: from sync_batchnorm import DataParallelWithCallback, SynchronizedBatchNorm1d,
# SynchronizedBatchNorm2d was: from sync_batchnorm import convert_model, patch_replication_callback
# was: from torch.nn import DataParallel
from deliralike.backends.torch import (
    DataParallel,
    DataParallelWithCallback,
    SynchronizedBatchNorm1d,
    SynchronizedBatchNorm2d,
    convert_model,
    patch_replication_callback,
)


def digits(length=25):
    bunch = load_digits()
    return torch.from_numpy(bunch.images[:length, None] / 16), torch.from_numpy(
        bunch.target[:length]
    )


def network(norm2d=nn.BatchNorm2d, norm1d=nn.BatchNorm1d):
    torch.manual_seed(3)
    layers = [
        nn.Conv2d(1, 4, 3),
        norm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 10),
        norm1d(10, eps=1e-5),
    ]
    return nn.Sequential(*layers).double()


def train(model, steps=3):
    images, labels = digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def layers_of_its_own(devices):
    model = network(SynchronizedBatchNorm2d, SynchronizedBatchNorm1d)
    return train(DataParallelWithCallback(model, device_ids=devices))


def patched(devices):
    model = DataParallel(
        network(SynchronizedBatchNorm2d, SynchronizedBatchNorm1d), device_ids=devices
    )
    patch_replication_callback(model)
    return train(model)


def converted(devices):
    return train(DataParallelWithCallback(convert_model(network()), device_ids=devices))
