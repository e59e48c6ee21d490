"""The padded GRU on Chainer, which takes lists of sentences of different lengths."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class PaddedGRU(chainer.Chain):
    """States after the last words, and means of the words."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(13, 6, ignore_label=0)
            self.gru = L.NStepGRU(1, 6, 8, 0)
            self.fc = L.Linear(14, 3)

    def forward(self, tokens):
        lengths = (tokens != 0).sum(axis=1)
        x = self.embed(tokens)
        xs = [x[row, :length] for row, length in enumerate(lengths)]
        hy, _ = self.gru(None, xs)
        counts = lengths[:, None].astype(x.dtype)
        mean = F.sum(x, axis=1) / counts.repeat(6, axis=1)
        return self.fc(F.concat([hy[0], mean], axis=1))


def loss(network, tokens, labels):
    scores = F.log_softmax(network(tokens))
    likely = F.select_item(scores, labels)
    smooth = F.mean(scores, axis=1)
    return -F.mean(0.9 * likely + 0.1 * smooth)


def network(reference):
    port = PaddedGRU()
    port.embed.W.array[...] = reference.embedding.weight.detach().numpy()
    parts = dict(reference.gru.named_parameters())
    for first, x_or_h in ((0, "ih"), (3, "hh")):
        weights = parts[f"weight_{x_or_h}_l0"].detach().numpy()
        biases = parts[f"bias_{x_or_h}_l0"].detach().numpy()
        for gate in range(3):
            rows = slice(8 * gate, 8 * gate + 8)
            getattr(port.gru[0], f"w{first + gate}").array[...] = weights[rows]
            getattr(port.gru[0], f"b{first + gate}").array[...] = biases[rows]
    port.fc.W.array[...] = reference.classifier.weight.detach().numpy()
    port.fc.b.array[...] = reference.classifier.bias.detach().numpy()
    return port
