"""LSTM and GRU classifiers, beside the same of plain modules; lengths are handled by PyTorch's
packed sequences."""

from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from deliralike.zoo import Input
from tests.zoo.case import Case

TOKENS = {
    "num_classes": 3,
    "vocab_size": 11,
    "in_features": 4,
    "hidden_size": 5,
    "num_layers": 2,
    "bidirectional": True,
}
VECTORS = {
    "num_classes": 3,
    "vocab_size": 0,
    "in_features": 4,
    "hidden_size": 5,
}
PLAIN = {
    "num_classes": 3,
    "vocab_size": 11,
    "in_features": 4,
    "hidden_size": 5,
    "bidirectional": True,
}


class Reference(nn.Module):
    """Embedding, recurrent layers, last states, linear layer."""

    def __init__(
        self,
        cell,
        num_classes=2,
        vocab_size=30000,
        in_features=128,
        hidden_size=256,
        num_layers=1,
        bidirectional=False,
    ):
        super().__init__()
        self.bidirectional = bidirectional
        self.embedding = nn.Embedding(vocab_size, in_features) if vocab_size else None
        layer = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.rnn = layer(
            in_features,
            hidden_size,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
        )
        self.fc = nn.Linear(hidden_size * (1 + bidirectional), num_classes)

    def forward(self, x, lengths=None):
        x = self.embedding(x) if self.embedding is not None else x
        lengths = torch.full((x.shape[0],), x.shape[1]) if lengths is None else lengths
        _, state = self.rnn(
            pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        )
        state = state[0] if isinstance(state, tuple) else state
        return self.fc(torch.cat([*state[-2:]], 1) if self.bidirectional else state[-1])


FULL = {f"{cell}_classifier": partial(Reference, cell) for cell in ("lstm", "gru")}

CASES = [
    Case(
        "lstm_classifier",
        TOKENS,
        [Input((5,), below=11), Input((), below=6)],
        batch=4,
        reference=partial(Reference, "lstm", **TOKENS),
    ),
    Case(
        "gru_classifier",
        VECTORS,
        [(4, 4), Input((), below=5)],
        batch=4,
        reference=partial(Reference, "gru", **VECTORS),
    ),
    Case(
        "gru_classifier",
        PLAIN,
        (Input((4,), below=11)),
        of="of whole sequences",
        reference=partial(Reference, "gru", **PLAIN),
    ),
]
