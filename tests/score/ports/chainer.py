"""Ports to Chainer, each in the habits of another author."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links


class UNet(chainer.Chain):
    """The sigmoid-weighted unit is written out, which has a trained slope in Chainer."""

    def __init__(self, c=4):
        super().__init__()
        with self.init_scope():
            self.dc = L.Deconvolution2D(2 * c, c, 2, 2)
            self.c1 = L.Convolution2D(2, c, 3, pad=1)
            self.c2 = L.Convolution2D(c, 2 * c, 3, 2, 1)
            self.c3 = L.Convolution2D(2 * c, c, 3, pad=1)
            self.c4 = L.Convolution2D(c, 3, 1)
            self.n1, self.n2 = (
                L.GroupNormalization(2, c),
                L.GroupNormalization(2, 2 * c),
            )

    def forward(self, x):
        e = self.silu(self.n1(self.c1(x)))
        d = self.dc(self.silu(self.n2(self.c2(e))))
        return self.c4(self.silu(self.c3(F.concat((e, d)))))

    @staticmethod
    def silu(h):
        return h * F.sigmoid(h)


class Similarity(chainer.Chain):
    """Takes texts first; the scale is a vector of one."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lt, self.li = L.Linear(4, 7), L.Linear(5, 7)
            self.s = chainer.Parameter(0, (1,))

    def forward(self, text, image):
        image = F.normalize(self.li(image), 1e-12)
        h = F.matmul(image, F.normalize(F.tanh(self.lt(text)), 1e-12), transb=True)
        return h * F.broadcast_to(F.exp(self.s), h.shape)


class ResNet(chainer.Chain):
    """The settings of the links by position."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc6 = L.Linear(None, 4)
            self.bn_a = L.BatchNormalization(5, decay=0.9, eps=1e-5)
            self.bn_b = L.BatchNormalization(5, decay=0.9, eps=1e-5)
            self.conv_a = L.Convolution2D(None, 5, 5, 2, 2, nobias=True)
            self.conv_b = L.Convolution2D(5, 5, 3, 1, 1, True)

    def forward(self, x):
        h = F.relu(self.bn_a(self.conv_a(x)))
        h = F.max_pooling_2d(h, 3, 2, 1, cover_all=False)
        return self.fc6(F.relu(self.bn_b(self.conv_b(h)) + h))


class TextCNN(chainer.Chain):
    """A sentence as a picture with one channel."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.words = L.EmbedID(13, 6)
            self.w3, self.w2 = (
                L.Convolution2D(1, 4, (3, 6)),
                L.Convolution2D(1, 4, (2, 6)),
            )
            self.top = L.Linear(8, 4)

    def forward(self, xs):
        e = F.expand_dims(self.words(xs), 1)
        h = [F.squeeze(F.max(F.relu(c(e)), axis=2), 2) for c in (self.w2, self.w3)]
        return self.top(F.dropout(F.hstack(h), 0.4))


def text_cnn(reference):
    cnn = TextCNN()
    cnn.words.W.array[...] = reference.e.weight.detach().numpy()
    cnn.top.W.array[...] = reference.o.weight.detach().numpy()
    cnn.top.b.array[...] = reference.o.bias.detach().numpy()
    for mine, theirs in zip((cnn.w2, cnn.w3), reference.convs):
        mine.W.array[:, 0] = theirs.weight.detach().numpy().transpose(0, 2, 1)
        mine.b.array[...] = theirs.bias.detach().numpy()
    return cnn


ARGUMENTS = ()
PORTS = {
    "u-net, unit written out": ("u-net", UNet),
    "pair, texts first": ("pair", Similarity, (1, 0)),
    "residual, by position": ("residual", ResNet),
    "sentences, as pictures": ("sentences", text_cnn),
}
