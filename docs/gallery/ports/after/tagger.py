"""Tagger, written once: a port of before.tagger."""

from deliralike import Network


class Tagger(Network):
    def __init__(self, words, tags, embedding=6, hidden=5, layers=2, dropout=0.0):
        super().__init__()
        nn = self.nn
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
        nn = self.nn
        shape = (2 * self.layers, batch, self.hidden)
        return (
            nn.zeros(shape, like=self.embedding.weight),
            nn.zeros(shape, like=self.embedding.weight),
        )

    def forward(self, sentence):
        nn = self.nn
        state = self.first_state(sentence.shape[0], None)
        x, (last, _) = self.lstm(self.embedding(sentence), state)
        both = nn.cat((last[-2, :, :], last[-1, :, :]), dim=1)
        x, _ = self.gru(x)
        return {
            "tags": nn.log_softmax(self.tag(nn.tanh(x)), dim=-1),
            "mood": self.mood(both),
        }
