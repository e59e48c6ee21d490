"""Sentences through two recurrent layers: states that are given, last states of both directions, two outputs."""

import torch
import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self, words, tags, embedding=6, hidden=5, layers=2, dropout=0.0):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.embedding = nn.Embedding(words, embedding, padding_idx=0)
        self.lstm = nn.LSTM(
            input_size=embedding,
            hidden_size=hidden,
            num_layers=layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout,
        )
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.tag = nn.Linear(hidden, tags)
        self.mood = nn.Linear(2 * hidden, 2)

    def first_state(self, batch, device):
        shape = (2 * self.layers, batch, self.hidden)
        return (torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def forward(self, sentence):
        state = self.first_state(sentence.size(0), sentence.device)
        x, (last, _) = self.lstm(self.embedding(sentence), state)
        both = torch.cat((last[-2, :, :], last[-1, :, :]), dim=1)
        x, _ = self.gru(x)
        return {"tags": self.tag(x.tanh()).log_softmax(dim=-1), "mood": self.mood(both)}
