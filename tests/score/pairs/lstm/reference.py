"""A classifier of sentences, as people write it on PyTorch."""

import numpy as np
import torch
from torch import nn


class SentenceClassifier(nn.Module):
    """The last state of an LSTM over embedded words, classified."""

    def __init__(self, words=11, width=7, hidden=9, classes=4):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 6)
        self.out = nn.Linear(6, classes)

    def forward(self, tokens):
        _, (h, _) = self.lstm(self.embed(tokens))
        return self.out(torch.tanh(self.fc(h[-1])))


def network():
    """The classifier with weights from a generator."""
    torch.manual_seed(3)
    model = SentenceClassifier()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
            parameter.copy_(torch.round(parameter * 256) / 256)  # so that sums of biases are exact
    return model


def batch():
    """Words of five sentences, and their classes."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 11, (5, 6)), np.array([0, 3, 1, 2, 2])
