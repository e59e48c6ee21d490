"""The classifier on Chainer, with its own LSTM over lists."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class Classifier(chainer.Chain):
    """Embedding, LSTM over a list of sentences, head."""

    def __init__(self, n_vocab, n_units, n_hidden, n_out):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.encoder = L.NStepLSTM(1, n_units, n_hidden, 0.0)
            self.l1 = L.Linear(n_hidden, 6)
            self.l2 = L.Linear(6, n_out)

    def forward(self, tokens):
        xs = [self.embed(sentence) for sentence in tokens]
        hy, cy, ys = self.encoder(None, None, xs)
        h = F.tanh(self.l1(hy[-1]))
        return self.l2(h)


def network(reference):
    """The port; each gate of NStepLSTM has arrays of its own."""
    model = Classifier(11, 7, 9, 4)
    model.embed.W.array[...] = reference.embed.weight.detach().numpy()
    unit = model.encoder[0]
    lstm = reference.lstm
    order = (0, 1, 2, 3)  # i, f, g, o in both
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    blocks = {name: getattr(lstm, name).detach().numpy().reshape(4, 9, -1) for name in names}
    for number, block in enumerate(order):
        getattr(unit, f"w{number}").array[...] = blocks["weight_ih_l0"][block]
        getattr(unit, f"w{number + 4}").array[...] = blocks["weight_hh_l0"][block]
        getattr(unit, f"b{number}").array[...] = blocks["bias_ih_l0"][block, :, 0]
        getattr(unit, f"b{number + 4}").array[...] = blocks["bias_hh_l0"][block, :, 0]
    for layer, source in ((model.l1, reference.fc), (model.l2, reference.out)):
        layer.W.array[...] = source.weight.detach().numpy()
        layer.b.array[...] = source.bias.detach().numpy()
    return model
