"""Chains as people have written them, with their habits."""
# ruff: noqa: E741, RET504, UP008, UP031, UP032

import collections
import math
from functools import partial

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import six
from chainer import Sequential, Variable, cuda, initializers, reporter
from chainer.functions.activation.relu import relu
from chainer.links.connection.convolution_2d import Convolution2D
from chainer.links.connection.linear import Linear


class Perceptron(chainer.Chain):
    """Members by their names, as before Chainer 2, and sizes that are found out."""

    def __init__(self, n_units, n_out):
        super().__init__(
            l1=L.Linear(None, n_units),
            l2=L.Linear(None, n_units),
            l3=L.Linear(None, n_out, nobias=True),
        )

    def __call__(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


class Block(chainer.Chain):
    def __init__(self, out_channels, ksize, pad=1):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, out_channels, ksize, pad=pad, nobias=True)
            self.bn = L.BatchNormalization(out_channels)

    def forward(self, x):
        h = self.conv(x)
        h = self.bn(h)
        return F.relu(h)


class Blocks(chainer.Chain):
    """A class whose instances have other sizes, and pooling that covers all."""

    def __init__(self, class_labels=10):
        super().__init__()
        with self.init_scope():
            self.block1_1 = Block(6, 3)
            self.block1_2 = Block(6, 3)
            self.block2 = Block(8, 3)
            self.fc1 = L.Linear(None, 16, nobias=True)
            self.bn_fc1 = L.BatchNormalization(16, decay=0.8)
            self.fc2 = L.Linear(None, class_labels, nobias=True)

    def forward(self, x):
        h = self.block1_1(x)
        h = F.dropout(h, ratio=0.3)
        h = self.block1_2(h)
        h = F.max_pooling_2d(h, ksize=2, stride=2)
        h = F.dropout(self.block2(h), ratio=0.4)
        h = F.average_pooling_2d(h, 2)
        h = self.fc1(h)
        h = F.relu(self.bn_fc1(h))
        return self.fc2(F.dropout(h))


class Generator(chainer.Chain):
    def __init__(self, n_hidden, bottom_width=4, ch=8, wscale=0.02):
        super().__init__()
        self.n_hidden = n_hidden
        self.ch = ch
        self.bottom_width = bottom_width

        with self.init_scope():
            w = chainer.initializers.Normal(wscale)
            self.l0 = L.Linear(
                self.n_hidden, bottom_width * bottom_width * ch, initialW=w
            )
            self.dc1 = L.Deconvolution2D(ch, ch // 2, 4, 2, 1, initialW=w)
            self.dc2 = L.Deconvolution2D(ch // 2, 3, 3, 1, 1, initialW=w)
            self.bn0 = L.BatchNormalization(bottom_width * bottom_width * ch)
            self.bn1 = L.BatchNormalization(ch // 2)

    def forward(self, z):
        h = F.reshape(
            F.relu(self.bn0(self.l0(z))),
            (len(z), self.ch, self.bottom_width, self.bottom_width),
        )
        h = F.relu(self.bn1(self.dc1(h)))
        return F.sigmoid(self.dc2(h))


class Residuals(chainer.ChainList):
    def __init__(self, n, width):
        super().__init__()
        for _ in range(n):
            self.add_link(Sequential(L.Convolution2D(None, width, 3, pad=1), F.relu))
        self.add_link(L.GroupNormalization(2))

    def __call__(self, x):
        *blocks, norm = self.children()
        for f in blocks:
            x = x + f(x)
        return norm(x)


class Mixed(chainer.Chain):
    def __init__(self, width=6):
        super().__init__()
        self.width = width
        with self.init_scope():
            self.stem = L.DilatedConvolution2D(3, width, 3, pad=2, dilate=2)
            self.rest = Residuals(2, width)
            self.scale = chainer.Parameter(
                chainer.initializers.Constant(0.5), (width, 1, 1)
            )
            self.norm = L.LayerNormalization(2 * width)
            self.out = L.Linear(2 * width, 5)
        self.add_persistent("mean", np.arange(3, dtype=np.float32).reshape(3, 1, 1))

    def __call__(self, x):
        x = x - F.broadcast_to(self.mean, x.shape)
        h = F.local_response_normalization(self.stem(x), n=3)
        h = self.rest(h) * F.broadcast_to(self.scale, h.shape)
        b, c = h.shape[0], h.shape[1]
        pooled = F.concat((F.mean(h, axis=(2, 3)), F.max(h.reshape(b, c, -1), axis=2)))
        if chainer.config.train:
            pooled = 1.0 * pooled
        attention = F.softmax(F.matmul(pooled, pooled, transb=True))
        h = F.transpose(F.matmul(attention, pooled), (0, 1))
        return F.log_softmax(self.out(F.leaky_relu(self.norm(h))))


class Words(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.conv = L.Convolution1D(n_units, n_units, 3, pad=1)
            self.out = L.Linear(n_units, n_vocab)

    def __call__(self, x):
        e = self.embed(x)
        h = F.tanh(self.conv(F.swapaxes(e, 1, 2)))
        h = F.stack([F.max(h, axis=2), F.sum(h, axis=2)], axis=1)
        a, b = F.split_axis(h, 2, axis=1)
        return self.out(F.squeeze(a, axis=1) + F.reshape(b, (len(x), -1)))


class ByHand(chainer.Chain):
    """What has no counterpart."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm = L.StatefulZoneoutLSTM(4, 3)
            self.peep = L.StatefulPeepholeLSTM(3, 3)
            self.most = L.Maxout(3, 3, 2)
            self.steps = L.NStepLSTM(1, 3, 3, 0.0)
            self.out = L.Linear(3, 2)

    def __call__(self, x):
        noise = self.xp.random.normal(size=x.shape).astype(x.dtype)
        h = self.peep(self.lstm(x + noise))
        h = F.permutate(self.most(h), np.array([2, 0, 1]), axis=1)
        return F.rrelu(self.out(h))


class Normed(chainer.Chain):
    def __init__(self, in_channels, out_channels, bn_kwargs={}):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(
                in_channels, out_channels, 3, pad=1, nobias=True
            )
            self.bn = L.BatchNormalization(out_channels, **bn_kwargs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Stages(chainer.Chain):
    """Members by names that are put together, what is reported, enlarging in three ways."""

    def __init__(self, count=2, channels=3):
        super().__init__()
        self.count = count
        for at in range(count):
            options = {"eps": 1e-3, "decay": 0.7} if at else {"decay": 0.95}
            self.add_link(f"stage{at}", Normed(channels, 4, options))
            channels = 4
        with self.init_scope():
            self.out = L.Convolution2D(4, 2, 1)

    def __call__(self, x, t=None):
        size = x.shape[2:]
        for at in range(self.count):
            x = self[f"stage{at}"](x)
        small = F.clip(F.average_pooling_2d(x, 2), x_max=1.5, x_min=0.25)
        x = F.unpooling_2d(small, 2, cover_all=False) + F.unpooling_2d(
            small, 2, outsize=size
        )
        x = self.out(x)[:, :, 1:, 1:] + F.unpooling_2d(self.out(small), 2)
        if t is None:
            return F.softmax(x)
        loss = F.softmax_cross_entropy(x, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(x, t)}, self)
        return loss


class Ignoring(chainer.Chain):
    """A word that stands for none."""

    def __init__(self, n_vocab):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, 5, ignore_label=-1)
            self.out = L.Linear(5, 3)

    def forward(self, xs):
        return self.out(F.sum(self.embed(xs), axis=1))


class FoundOut(chainer.Chain):
    """A number of channels that is found out, handed on by the block around it."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = Normed(None, 4)

    def forward(self, x):
        return self.first(x)


class Made(chainer.Chain):
    """Links that are made of other links, and a setting with the name of a method."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.inception = L.Inception(3, 4, 3, 5, 2, 4, 3)
            self.bn = L.InceptionBN(16, 0, 3, 4, 3, 4, "max", stride=2)
            self.fc = L.Linear(None, 6)
            self.highway = L.Highway(6)
        self.train = True

    def __call__(self, x):
        h = self.bn(self.inception(x))
        return self.highway(self.fc(h)), self.train


class Listed(chainer.ChainList):
    """Members that are handed to the list one by one."""

    def __init__(self):
        links = [L.Linear(5, 5) for _ in range(2)]
        super().__init__(L.Linear(4, 5), *links)
        self.scale = 0.5

    def forward(self, x):
        for link in self.children():
            x = F.tanh(link(x)) * self.scale
        return x


class Discriminator(chainer.Chain):
    """Batch normalisation without a factor, or without a shift."""

    def __init__(self, ch=8):
        super().__init__()
        w = chainer.initializers.Normal(0.02)
        with self.init_scope():
            self.c0 = L.Convolution2D(3, ch, 4, 2, 1, initialW=w)
            self.bn0 = L.BatchNormalization(ch, use_gamma=False)
            self.l1 = L.Linear(None, 5, initialW=w)
            self.bn1 = L.BatchNormalization(5, decay=0.8, use_beta=False)

    def forward(self, x):
        h = F.leaky_relu(self.bn0(self.c0(x)))
        return self.bn1(self.l1(h))


class RNNForLM(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super(RNNForLM, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.l1 = L.LSTM(n_units, n_units)
            self.l2 = L.LSTM(n_units, n_units)
            self.l3 = L.Linear(n_units, n_vocab)

        for param in self.params():
            param.array[...] = np.random.uniform(-0.1, 0.1, param.shape)

    def reset_state(self):
        self.l1.reset_state()
        self.l2.reset_state()

    def forward(self, x):
        h0 = self.embed(x)
        h1 = self.l1(F.dropout(h0))
        h2 = self.l2(F.dropout(h1))
        y = self.l3(F.dropout(h2))
        return y


class SequenceClassifier(chainer.Chain):
    """State within a call alone."""

    def __init__(self, n_in=4, n_units=5, n_out=3):
        super(SequenceClassifier, self).__init__(
            lstm=L.LSTM(n_in, n_units),
            out=L.Linear(n_units, n_out),
        )

    def reset_state(self):
        self.lstm.reset_state()

    def __call__(self, xs):
        self.reset_state()
        for t in range(xs.shape[1]):
            h = self.lstm(xs[:, t])
        return self.out(h)


class AttSeq2Seq(chainer.Chain):
    """Encoder and decoder of links without a state, with attention over the encoder's steps."""

    def __init__(self, vocab_size, embed_size, hidden_size):
        super(AttSeq2Seq, self).__init__(
            xe=L.EmbedID(vocab_size, embed_size, ignore_label=-1),
            enc=L.StatelessLSTM(embed_size, hidden_size),
            ye=L.EmbedID(vocab_size, embed_size),
            dec=L.StatelessLSTM(embed_size, hidden_size),
            pw=L.Linear(hidden_size, hidden_size),
            hj=L.Linear(2 * hidden_size, vocab_size),
        )
        self.hidden_size = hidden_size

    def __call__(self, words, targets):
        xp = self.xp
        batch = len(words)
        c = Variable(xp.zeros((batch, self.hidden_size), dtype="f"))
        h = Variable(xp.zeros((batch, self.hidden_size), dtype="f"))
        hs = []
        for t in six.moves.range(words.shape[1]):
            c, h = self.enc(c, h, F.tanh(self.xe(words[:, t])))
            hs.append(h)
        hs = F.stack(hs, axis=1)
        ys = []
        c = None
        for t in range(targets.shape[1]):
            c, h = self.dec(c, h, F.tanh(self.ye(targets[:, t])))
            w = F.softmax(F.reshape(F.matmul(hs, self.pw(h)[:, :, None]), (batch, -1)))
            att = F.reshape(
                F.matmul(hs, w[:, :, None], transa=True), (batch, self.hidden_size)
            )
            ys.append(self.hj(F.concat([h, att])))
        return F.stack(ys, 1)


class BottleNeckA(chainer.Chain):
    def __init__(self, in_size, ch, out_size, stride=2):
        super(BottleNeckA, self).__init__()
        initialW = initializers.HeNormal()

        with self.init_scope():
            self.conv1 = L.Convolution2D(
                in_size, ch, 1, stride, 0, initialW=initialW, nobias=True
            )
            self.bn1 = L.BatchNormalization(ch)
            self.conv2 = L.Convolution2D(
                ch, ch, 3, 1, 1, initialW=initialW, nobias=True
            )
            self.bn2 = L.BatchNormalization(ch)
            self.conv3 = L.Convolution2D(
                ch, out_size, 1, 1, 0, initialW=initialW, nobias=True
            )
            self.bn3 = L.BatchNormalization(out_size)
            self.conv4 = L.Convolution2D(
                in_size, out_size, 1, stride, 0, initialW=initialW, nobias=True
            )
            self.bn4 = L.BatchNormalization(out_size)

    def __call__(self, x):
        h1 = F.relu(self.bn1(self.conv1(x)))
        h1 = F.relu(self.bn2(self.conv2(h1)))
        h1 = self.bn3(self.conv3(h1))
        h2 = self.bn4(self.conv4(x))
        return F.relu(h1 + h2)


class BottleNeckB(chainer.Chain):
    def __init__(self, in_size, ch):
        super(BottleNeckB, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(in_size, ch, 1, 1, 0, nobias=True)
            self.bn1 = L.BatchNormalization(ch)
            self.conv2 = L.Convolution2D(ch, in_size, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(in_size)

    def __call__(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + x)


class ResBlock(chainer.Chain):
    def __init__(self, layer, in_size, ch, out_size, stride=2):
        super(ResBlock, self).__init__()
        self.add_link("a", BottleNeckA(in_size, ch, out_size, stride))
        for i in range(1, layer):
            self.add_link("b{}".format(i), BottleNeckB(out_size, ch))
        self.layer = layer

    def __call__(self, x):
        h = self.a(x)
        for i in range(1, self.layer):
            h = self["b{}".format(i)](h)
        return h


class ResNet50ish(chainer.Chain):
    insize = 224

    def __init__(self):
        super(ResNet50ish, self).__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(
                3, 8, 7, 2, 3, initialW=initializers.HeNormal()
            )
            self.bn1 = L.BatchNormalization(8)
            self.res2 = ResBlock(2, 8, 4, 16, 1)
            self.res3 = ResBlock(2, 16, 4, 16)
            self.fc = L.Linear(16, 5)

    def __call__(self, x, t):
        h = self.bn1(self.conv1(x))
        h = F.max_pooling_2d(F.relu(h), 3, stride=2)
        h = self.res2(h)
        h = self.res3(h)
        h = F.average_pooling_2d(h, h.shape[2:], stride=1)
        h = self.fc(h)
        loss = F.softmax_cross_entropy(h, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(h, t)}, self)
        return loss


class CBR(chainer.Chain):
    def __init__(
        self, ch0, ch1, bn=True, sample="down", activation=F.relu, dropout=False
    ):
        self.bn = bn
        self.activation = activation
        self.dropout = dropout
        layers = {}
        w = chainer.initializers.Normal(0.02)
        if sample == "down":
            layers["c"] = L.Convolution2D(ch0, ch1, 4, 2, 1, initialW=w)
        else:
            layers["c"] = L.Deconvolution2D(ch0, ch1, 4, 2, 1, initialW=w)
        if bn:
            layers["batchnorm"] = L.BatchNormalization(ch1)
        super(CBR, self).__init__(**layers)

    def __call__(self, x):
        h = self.c(x)
        if self.bn:
            h = self.batchnorm(h)
        if self.dropout:
            h = F.dropout(h)
        if self.activation is not None:
            h = self.activation(h)
        return h


class Pix2PixEncoder(chainer.Chain):
    def __init__(self, in_ch):
        layers = {}
        w = chainer.initializers.Normal(0.02)
        layers["c0"] = L.Convolution2D(in_ch, 4, 3, 1, 1, initialW=w)
        layers["c1"] = CBR(
            4, 6, bn=True, sample="down", activation=F.leaky_relu, dropout=False
        )
        layers["c2"] = CBR(
            6, 6, bn=True, sample="down", activation=F.leaky_relu, dropout=True
        )
        super(Pix2PixEncoder, self).__init__(**layers)

    def __call__(self, x):
        hs = [F.leaky_relu(self.c0(x))]
        for i in range(1, 3):
            hs.append(self["c%d" % i](hs[i - 1]))
        return hs


class SkipGram(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super(SkipGram, self).__init__()
        with self.init_scope():
            self.embed = L.EmbedID(
                n_vocab, n_units, initialW=initializers.Uniform(1.0 / n_units)
            )
            self.out = L.Linear(n_units, n_vocab, initialW=0)

    def __call__(self, x, contexts):
        e = self.embed(contexts)
        batch_size, n_context, n_units = e.shape
        x = F.broadcast_to(x[:, None], (batch_size, n_context))
        e = F.reshape(e, (batch_size * n_context, n_units))
        x = F.reshape(x, (batch_size * n_context,))
        loss = F.softmax_cross_entropy(self.out(e), x)
        reporter.report({"loss": loss}, self)
        return loss


class MemNN(chainer.Chain):
    def __init__(self, n_units, n_vocab, max_memory=5, hops=2):
        super(MemNN, self).__init__()
        with self.init_scope():
            self.embeds = chainer.ChainList(
                *[L.EmbedID(n_vocab, n_units) for _ in range(hops + 1)]
            )
            self.temporal = L.EmbedID(max_memory, n_units)
            self.W = L.Linear(n_units, n_vocab, nobias=True)
        self.n_units = n_units
        self.hops = hops

    def __call__(self, sentences, query):
        xp = cuda.get_array_module(sentences)
        u = F.sum(self.embeds[0](query), axis=1)
        inds = xp.arange(sentences.shape[1], dtype=np.int32)[::-1]
        for i in range(self.hops):
            mem = F.sum(self.embeds[i](sentences), axis=2)
            tm = self.temporal(xp.ascontiguousarray(inds))
            mem = mem + F.broadcast_to(tm, mem.shape)
            p = F.softmax(F.sum(mem * F.broadcast_to(u[:, None, :], mem.shape), axis=2))
            c = F.sum(self.embeds[i + 1](sentences), axis=2)
            o = F.matmul(F.swapaxes(c, 2, 1), p[:, :, None])
            u = F.squeeze(o, -1) + u
        return self.W(u)


class InstanceNorm(chainer.Chain):
    def __init__(self, n):
        super(InstanceNorm, self).__init__()
        with self.init_scope():
            self.gamma = chainer.Parameter(1.0, n)
            self.beta = chainer.Parameter(0.0, n)

    def __call__(self, x):
        b, c, h, w = x.shape
        y = F.reshape(x, (1, b * c, h, w))
        gamma = F.tile(self.gamma, b)
        beta = F.tile(self.beta, (b,))
        return F.reshape(F.batch_normalization(y, gamma, beta), (b, c, h, w))


class StyleResidual(chainer.Chain):
    def __init__(self, n_in, n_out, stride=1, ksize=3):
        w = math.sqrt(2)
        super(StyleResidual, self).__init__(
            c1=L.Convolution2D(
                n_in, n_out, ksize, stride, 1, initialW=chainer.initializers.HeNormal(w)
            ),
            c2=L.Convolution2D(n_out, n_out, ksize, 1, 1),
            b1=InstanceNorm(n_out),
            b2=L.BatchNormalization(n_out),
        )

    def __call__(self, x):
        h = F.relu(self.b1(self.c1(x)))
        h = self.b2(self.c2(h))
        if x.data.shape != h.data.shape:
            xp = chainer.cuda.get_array_module(x.data)
            n, c, hh, ww = x.data.shape
            pad_c = h.data.shape[1] - c
            p = xp.zeros((n, pad_c, hh, ww), dtype=xp.float32)
            p = chainer.Variable(p)
            x = F.concat((p, x))
            if x.data.shape[2:] != h.data.shape[2:]:
                x = F.average_pooling_2d(x, 1, 2)
        return h + x


class FastStyleNet(chainer.Chain):
    def __init__(self):
        super(FastStyleNet, self).__init__(
            c1=L.Convolution2D(3, 4, 9, stride=1, pad=4),
            b1=L.BatchNormalization(4),
            r1=StyleResidual(4, 4),
            r2=StyleResidual(4, 6),
            d1=L.Deconvolution2D(6, 4, 4, stride=2, pad=1),
            d2=L.Deconvolution2D(4, 3, 9, stride=1, pad=4),
        )

    def __call__(self, x, test=False):
        h = self.b1(F.elu(self.c1(x)))
        h = self.r2(self.r1(h))
        h = F.elu(self.d1(h))
        y = self.d2(h)
        return (F.tanh(y) + 1) * 127.5


class ResidualConv(chainer.Chain):
    def __init__(
        self, filter_size, dilation, residual_channels, dilated_channels, skip_channels
    ):
        super(ResidualConv, self).__init__()
        with self.init_scope():
            self.conv = L.DilatedConvolution2D(
                residual_channels,
                dilated_channels,
                ksize=(filter_size, 1),
                pad=(dilation * (filter_size - 1), 0),
                dilate=(dilation, 1),
            )
            self.res = L.Convolution2D(dilated_channels // 2, residual_channels, 1)
            self.skip = L.Convolution2D(dilated_channels // 2, skip_channels, 1)
        self.filter_size = filter_size
        self.dilation = dilation

    def __call__(self, x):
        length = x.shape[2]
        h = self.conv(x)
        h = h[:, :, :length]
        tanh_z, sig_z = F.split_axis(h, 2, axis=1)
        z = F.tanh(tanh_z) * F.sigmoid(sig_z)
        if x.shape[2] == z.shape[2]:
            residual = self.res(z) + x
        else:
            residual = self.res(z) + x[:, :, -1:]
        return residual, self.skip(z)


class ResidualNet(chainer.ChainList):
    def __init__(self, n_loop, n_layer, *args):
        super(ResidualNet, self).__init__()
        dilations = [2**i for i in range(n_layer)] * n_loop
        for dilation in dilations:
            self.add_link(ResidualConv(2, dilation, *args))

    def __call__(self, x):
        skips = 0
        for i, func in enumerate(self.children()):
            x, skip = func(x)
            skips += skip
        return skips


class WaveNet(chainer.Chain):
    def __init__(self, n_loop=1, n_layer=3, a_channels=8, r_channels=4, s_channels=5):
        super(WaveNet, self).__init__()
        with self.init_scope():
            self.embed = L.Convolution2D(
                a_channels, r_channels, (2, 1), pad=(1, 0), nobias=True
            )
            self.resnet = ResidualNet(
                n_loop, n_layer, r_channels, 2 * r_channels, s_channels
            )
            self.proj1 = L.Convolution2D(s_channels, s_channels, 1)
            self.proj2 = L.Convolution2D(s_channels, a_channels, 1)

    def __call__(self, x):
        length = x.shape[2]
        h = self.embed(x)[:, :, :length, :]
        h = F.relu(self.resnet(h))
        h = F.relu(self.proj1(h))
        return self.proj2(h)


class SegNet(chainer.Chain):
    def __init__(self, n_class=4):
        super(SegNet, self).__init__()
        initialW = chainer.initializers.HeNormal()
        with self.init_scope():
            self.conv1 = L.Convolution2D(
                None, 6, 3, 1, 1, nobias=True, initialW=initialW
            )
            self.conv1_bn = L.BatchNormalization(6, initial_beta=0.001)
            self.conv2 = L.Convolution2D(6, 6, 3, 1, 1, nobias=True, initialW=initialW)
            self.conv2_bn = L.BatchNormalization(6, initial_beta=0.001)
            self.conv_decode2 = L.Convolution2D(6, 6, 3, 1, 1, nobias=True)
            self.conv_decode2_bn = L.BatchNormalization(6)
            self.conv_classifier = L.Convolution2D(6, n_class, 1)

    def _upsampling_2d(self, x, indices, outsize):
        return F.upsampling_2d(x, indices, ksize=2, stride=2, outsize=outsize)

    def __call__(self, x):
        h = F.local_response_normalization(x, 5, 1, 1e-4 / 5.0, 0.75)
        h = F.relu(self.conv1_bn(self.conv1(h)))
        s1 = h.shape[2:]
        h, idx1 = F.max_pooling_2d(h, 2, stride=2, return_indices=True)
        h = F.relu(self.conv2_bn(self.conv2(h)))
        s2 = h.shape[2:]
        h, idx2 = F.max_pooling_2d(h, 2, stride=2, return_indices=True)
        h = self._upsampling_2d(h, idx2, s2)
        h = self.conv_decode2_bn(self.conv_decode2(h))
        h = self._upsampling_2d(h, idx1, s1)
        return self.conv_classifier(h)


class PointNetTrans(chainer.Chain):
    def __init__(self, k):
        super(PointNetTrans, self).__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(k, 8, 1)
            self.bn = L.BatchNormalization(8)
            self.fc = L.Linear(8, k * k)
        self.k = k

    def __call__(self, x):
        h = F.relu(self.bn(self.conv(x)))
        h = F.max_pooling_2d(h, ksize=h.shape[2:])
        h = self.fc(h)
        h = h.reshape((-1, self.k, self.k))
        xp = self.xp
        return h + xp.identity(self.k, dtype=xp.float32)[None]


class PointNet(chainer.Chain):
    def __init__(self, n_class=4):
        super(PointNet, self).__init__()
        with self.init_scope():
            self.trans = PointNetTrans(3)
            self.conv = L.Convolution2D(None, 8, ksize=1)
            self.fc = L.Linear(8, n_class)

    def __call__(self, x):
        t1 = self.trans(x)
        h = x[:, :, :, 0]
        h = F.transpose(F.matmul(F.transpose(h, (0, 2, 1)), t1), (0, 2, 1))[
            :, :, :, None
        ]
        h = F.relu(self.conv(h))
        h = F.max_pooling_2d(h, ksize=h.shape[2:])
        return self.fc(h), t1


class DuelingDQN(chainer.Chain):
    def __init__(self, n_actions, n_input_channels=4, activation=F.relu, bias=0.1):
        self.n_actions = n_actions
        self.activation = activation
        super(DuelingDQN, self).__init__()
        with self.init_scope():
            self.conv_layers = chainer.ChainList(
                L.Convolution2D(n_input_channels, 6, 8, stride=4, initial_bias=bias),
                L.Convolution2D(6, 6, 4, stride=2, initial_bias=bias),
            )
            self.a_stream = MLP(24, n_actions, [8])
            self.v_stream = MLP(24, 1, [8])

    def __call__(self, x):
        h = x
        for l in self.conv_layers:
            h = self.activation(l(h))
        batch_size = x.shape[0]
        h = h.reshape(batch_size, -1)
        ya = self.a_stream(h)
        mean = F.reshape(F.sum(ya, axis=1) / self.n_actions, (batch_size, 1))
        ya, mean = F.broadcast(ya, mean)
        ya -= mean
        ys = self.v_stream(h)
        ya, ys = F.broadcast(ya, ys)
        return ya + ys


class MLP(chainer.Chain):
    def __init__(
        self, in_size, out_size, hidden_sizes, nonlinearity=F.relu, last_wscale=1
    ):
        self.in_size = in_size
        self.out_size = out_size
        self.hidden_sizes = hidden_sizes
        self.nonlinearity = nonlinearity
        super(MLP, self).__init__()
        with self.init_scope():
            if hidden_sizes:
                hidden_layers = []
                hidden_layers.append(L.Linear(in_size, hidden_sizes[0]))
                for hin, hout in zip(hidden_sizes, hidden_sizes[1:]):
                    hidden_layers.append(L.Linear(hin, hout))
                self.hidden_layers = chainer.ChainList(*hidden_layers)
                self.output = L.Linear(
                    hidden_sizes[-1],
                    out_size,
                    initialW=initializers.LeCunNormal(last_wscale),
                )
            else:
                self.output = L.Linear(in_size, out_size)

    def __call__(self, x):
        h = x
        if self.hidden_sizes:
            for l in self.hidden_layers:
                h = self.nonlinearity(l(h))
        return self.output(h)


class A3CLSTM(chainer.Chain):
    """A head with a recurrent core."""

    def __init__(self, n_actions):
        super(A3CLSTM, self).__init__(
            head=L.Linear(6, 8),
            pi=L.Linear(8, n_actions),
            v=L.Linear(8, 1),
            lstm=L.LSTM(8, 8),
        )

    def pi_and_v(self, state):
        out = F.relu(self.head(state))
        out = self.lstm(out)
        return self.pi(out), self.v(out)

    def __call__(self, state):
        return self.pi_and_v(state)

    def reset_state(self):
        self.lstm.reset_state()


class NamedTwice(chainer.ChainList):
    """Members of a list that are attributes, too."""

    def __init__(self):
        self.head = L.Linear(4, 4)
        super(NamedTwice, self).__init__(self.head, L.Linear(4, 3))

    def __call__(self, x):
        return self[1](F.relu(self.head(x)))


class DarknetBlock(chainer.Chain):
    def __init__(self, n_in, n_out, ksize=3, pad=1):
        super(DarknetBlock, self).__init__(
            conv=L.Convolution2D(n_in, n_out, ksize, stride=1, pad=pad, nobias=True),
            bn=L.BatchNormalization(n_out, use_beta=False, eps=2e-5),
            bias=L.Bias(shape=(n_out,)),
        )

    def __call__(self, x):
        return F.leaky_relu(self.bias(self.bn(self.conv(x))), slope=0.1)


def reorg(input, stride=2):
    batch_size, input_channel, input_height, input_width = input.data.shape
    output_height, output_width = int(input_height / stride), int(input_width / stride)
    output = F.transpose(
        F.reshape(
            input,
            (batch_size, input_channel, output_height, stride, output_width, stride),
        ),
        (0, 1, 2, 4, 3, 5),
    )
    output = F.transpose(
        F.reshape(output, (batch_size, input_channel, output_height, output_width, -1)),
        (0, 4, 1, 2, 3),
    )
    return F.reshape(output, (batch_size, -1, output_height, output_width))


class YOLOv2(chainer.Chain):
    def __init__(self, n_classes=3, n_boxes=2):
        super(YOLOv2, self).__init__()
        self.add_link("conv1", DarknetBlock(3, 4))
        self.add_link("conv2", DarknetBlock(4, 6))
        self.add_link("conv3", DarknetBlock(6, 6, 1, 0))
        self.add_link(
            "conv4", L.Convolution2D(6 + 24, n_boxes * (5 + n_classes), ksize=1)
        )
        self.n_boxes = n_boxes
        self.n_classes = n_classes

    def __call__(self, x):
        h = self.conv1(x)
        h = F.max_pooling_2d(h, ksize=2, stride=2, pad=0)
        h = self.conv2(h)
        high = reorg(h)
        h = F.max_pooling_2d(h, ksize=2, stride=2, pad=0)
        h = self.conv3(h)
        h = F.concat((high, h), axis=1)
        output = self.conv4(h)
        batch_size, _, grid_h, grid_w = output.shape
        x, y, w, h, conf, prob = F.split_axis(
            F.reshape(
                output, (batch_size, self.n_boxes, self.n_classes + 5, grid_h, grid_w)
            ),
            (1, 2, 3, 4, 5),
            axis=2,
        )
        x = F.sigmoid(x)
        y = F.sigmoid(y)
        conf = F.sigmoid(conf)
        prob = F.transpose(prob, (0, 2, 1, 3, 4))
        prob = F.softmax(prob)
        return x, y, F.exp(w), h, conf, prob


class HighwayLM(chainer.Chain):
    def __init__(self, n):
        super(HighwayLM, self).__init__()
        with self.init_scope():
            self.plain = L.Linear(n, n)
            self.transform = L.Linear(n, n, initial_bias=-1)
            self.prelu = L.PReLU()
            self.prelu2 = L.PReLU(shape=(n,))
            self.scale = L.Scale(W_shape=(n,), bias_term=True)

    def __call__(self, x):
        g = F.sigmoid(self.transform(x))
        h = self.prelu(self.plain(x)) * g + x * (1.0 - g)
        h = self.scale(self.prelu2(h))
        return F.normalize(h)


class MobileSeparable(chainer.Chain):
    def __init__(self, in_channels=3, depth_multiplier=2):
        super(MobileSeparable, self).__init__()
        with self.init_scope():
            self.depthwise = L.Convolution2D(
                in_channels,
                in_channels * depth_multiplier,
                ksize=3,
                stride=2,
                pad=1,
                groups=in_channels,
            )
            self.bn = L.BatchNormalization(in_channels * depth_multiplier)
            self.pointwise = L.Convolution2D(
                in_channels * depth_multiplier, 8, 1, nobias=True
            )
            self.nd = L.ConvolutionND(2, 8, 4, 3, pad=1)

    def __call__(self, x):
        h = F.clipped_relu(self.bn(self.depthwise(x)), 6.0)
        return self.nd(self.pointwise(h))


class StarGenerator(chainer.Chain):
    def __init__(self, n_down=1, n_res=2, c_dim=2, ch=4):
        super(StarGenerator, self).__init__()
        with self.init_scope():
            self.conv0 = L.Convolution2D(3 + c_dim, ch, 7, 1, 3, nobias=True)
        for i in range(n_down):
            setattr(self, "down%d" % i, None)
            self.add_link("downs%d" % i, L.Convolution2D(ch, ch * 2, 4, 2, 1))
            ch *= 2
        for i in range(n_res):
            with self.init_scope():
                setattr(self, "res%d" % i, L.Convolution2D(ch, ch, 3, 1, 1))
        with self.init_scope():
            self.out = L.Deconvolution2D(ch, 3, 4, 2, 1)
        self.n_down, self.n_res = n_down, n_res

    def __call__(self, x, c):
        b, d = c.shape
        c = F.reshape(c, (b, d, 1, 1))
        c = F.tile(c, (1, 1, x.shape[2], x.shape[3]))
        h = F.relu(self.conv0(F.concat([x, c], axis=1)))
        for i in range(self.n_down):
            h = F.relu(getattr(self, "downs%d" % i)(h))
        for i in range(self.n_res):
            h = h + F.relu(getattr(self, "res%d" % i)(h))
        return F.tanh(self.out(h))


class MaskedErrors(chainer.Chain):
    """A mask of an array's values, and squared differences."""

    def __init__(self):
        super(MaskedErrors, self).__init__()
        with self.init_scope():
            self.loc = L.Linear(None, 6)
            self.out = L.Linear(None, 4)

    def __call__(self, x):
        theta = F.reshape(self.loc(x), (-1, 2, 3))
        y = theta + F.squared_error(theta, 2 * theta + 0.5)
        mask = (y.array > 0).astype(y.dtype)
        return self.out(F.where(y.array > 0, y, 0.1 * y) * mask)


class ConvLSTM(chainer.Chain):
    """A cell of one's own that remembers."""

    def __init__(self, n_in, n_out):
        super(ConvLSTM, self).__init__()
        with self.init_scope():
            self.up = L.Convolution2D(n_in, 4 * n_out, 3, pad=1)
            self.lateral = L.Convolution2D(n_out, 4 * n_out, 3, pad=1, nobias=True)
        self.n_out = n_out
        self.reset_state()

    def reset_state(self):
        self.c = self.h = None

    def __call__(self, x):
        y = self.up(x)
        if self.h is not None:
            y += self.lateral(self.h)
        if self.c is None:
            self.c = Variable(
                self.xp.zeros((x.shape[0], self.n_out) + x.shape[2:], dtype=x.dtype)
            )
        self.c, self.h = F.lstm(self.c, y)
        return self.h


class VideoNet(chainer.Chain):
    def __init__(self):
        super(VideoNet, self).__init__()
        with self.init_scope():
            self.cell = ConvLSTM(2, 3)

    def __call__(self, xs):
        self.cell.reset_state()
        for t in range(xs.shape[1]):
            h = self.cell(xs[:, t])
        return h


class PartialSequence(chainer.Chain):
    def __init__(self, n=4):
        super(PartialSequence, self).__init__()
        with self.init_scope():
            self.body = chainer.Sequential(
                L.Convolution2D(None, n, 3, pad=1),
                L.BatchNormalization(n),
                F.relu,
                partial(F.max_pooling_2d, ksize=2, stride=2),
                F.leaky_relu,
                L.Linear(None, 10),
            )

    def forward(self, x):
        return self.body(x)


class Actor(chainer.Chain):
    """Numbers of the batch, masks, and clips."""

    def __init__(self, n_obs=5, n_act=3):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(n_obs, 8)
            self.mean = L.Linear(8, n_act)
            self.log_std = chainer.Parameter(-0.5, (n_act,))
            self.value = L.Linear(8, 1)

    def __call__(self, obs, action):
        h = F.tanh(self.l1(obs))
        mean = self.mean(h)
        log_std = F.broadcast_to(self.log_std, mean.shape)
        var = F.exp(log_std) ** 2
        log_prob = (
            -((action - mean) ** 2) / (2 * var)
            - log_std
            - math.log(math.sqrt(2 * math.pi))
        )
        ratio = F.exp(F.sum(log_prob, axis=1))
        clipped = F.clip(ratio, 0.8, 1.2)
        best = F.argmax(mean, axis=1)
        chosen = F.select_item(mean, best)
        v = F.squeeze(self.value(h), axis=1)
        return (
            F.mean(F.minimum(ratio * v, clipped * v)),
            F.huber_loss(v[:, None], ratio[:, None], 1.0, reduce="no"),
            chosen,
        )


class Shuffle(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.c = L.Convolution2D(3, 8, 3, pad=1, groups=1)

    def __call__(self, x):
        h = self.c(x)
        n, c, hh, ww = h.shape
        h = F.reshape(
            F.transpose(F.reshape(h, (n, 2, c // 2, hh, ww)), (0, 2, 1, 3, 4)),
            (n, c, hh, ww),
        )
        b = F.moveaxis(h, 1, 3)
        d = F.pad(
            h, ((0, 0), (0, 0), (1, 1), (2, 0)), mode="constant", constant_values=0.5
        )[:, :, 1:-1, 2:]
        e = F.flip(h, 2) + F.repeat(F.max(h, axis=3, keepdims=True), ww, axis=3)
        f = F.linear_interpolate(F.sigmoid(h), d, e)
        g = F.get_item(f, (slice(None), [0, 2]))
        i = F.hstack([F.flatten(g)[:4], F.flatten(b + b)[:2]])
        j = h[:, ::-1, :, ::-1]
        k = F.dstack([x[0], x[1]])
        return (
            f,
            g,
            i,
            j,
            1.1 * k,
            F.prod(F.tanh(h), axis=1),
            F.maximum(d, e),
            F.cast(h > 0, "f") * h,
            F.normalize(h),
        )


class Endless(chainer.Chain):
    """It has no method that lets it forget."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm = L.LSTM(4, 3)

    def forward(self, x):
        return self.lstm(x)


class VGG16Layers(chainer.Chain):
    """chainer.links' own style: a table of functions by name, layers=[...]."""

    def __init__(self, n_out=4):
        super(VGG16Layers, self).__init__()
        kwargs = {}
        with self.init_scope():
            self.conv1_1 = Convolution2D(3, 4, 3, 1, 1, **kwargs)
            self.conv1_2 = Convolution2D(4, 4, 3, 1, 1, **kwargs)
            self.conv2_1 = Convolution2D(4, 6, 3, 1, 1, **kwargs)
            self.fc6 = Linear(6 * 4 * 4, 8, **kwargs)
            self.fc7 = Linear(8, n_out, **kwargs)

    @property
    def functions(self):
        return collections.OrderedDict(
            [
                ("conv1_1", [self.conv1_1, relu]),
                ("conv1_2", [self.conv1_2, relu]),
                ("pool1", [_max_pooling_2d]),
                ("conv2_1", [self.conv2_1, relu]),
                ("pool2", [_max_pooling_2d]),
                ("fc6", [self.fc6, relu, F.dropout]),
                ("fc7", [self.fc7]),
            ]
        )

    def __call__(self, x, layers=("fc7", "pool1")):
        h = x
        activations = {}
        target_layers = set(layers)
        for key, funcs in self.functions.items():
            if len(target_layers) == 0:
                break
            for func in funcs:
                h = func(h)
            if key in target_layers:
                activations[key] = h
                target_layers.remove(key)
        return activations


def _max_pooling_2d(x):
    return F.max_pooling_2d(x, ksize=2)


class GoogLeNetBN(chainer.Chain):
    def __init__(self):
        super(GoogLeNetBN, self).__init__(
            conv1=L.Convolution2D(None, 8, 7, stride=2, pad=3, nobias=True),
            norm1=L.BatchNormalization(8),
            inc3a=L.InceptionBN(None, 4, 4, 4, 4, 6, "avg", 4),
            inc3c=L.InceptionBN(None, 0, 4, 6, 4, 6, "max", stride=2),
            out=L.Linear(None, 5),
        )
        self._train = True

    @property
    def train(self):
        return self._train

    @train.setter
    def train(self, value):
        self._train = value

    def __call__(self, x, t):
        h = F.max_pooling_2d(F.relu(self.norm1(self.conv1(x))), 3, stride=2, pad=1)
        h = self.inc3a(h)
        h = self.inc3c(h)
        h = F.average_pooling_2d(h, h.shape[2:])
        y = self.out(h)
        self.loss = F.softmax_cross_entropy(y, t)
        self.accuracy = F.accuracy(y, t)
        return self.loss


class DenseBlock(chainer.Chain):
    def __init__(self, in_ch, growth_rate, n_layer):
        self.dropout_ratio = 0.2
        self.n_layer = n_layer
        super(DenseBlock, self).__init__()
        for i in range(n_layer):
            self.add_link(
                "bn%d" % (i + 1), L.BatchNormalization(in_ch + i * growth_rate)
            )
            self.add_link(
                "conv%d" % (i + 1),
                L.Convolution2D(
                    in_ch + i * growth_rate,
                    growth_rate,
                    3,
                    1,
                    1,
                    initialW=chainer.initializers.Normal(math.sqrt(2.0 / 9)),
                ),
            )

    def __call__(self, x):
        for i in range(1, self.n_layer + 1):
            h = F.relu(self["bn%d" % i](x))
            h = F.dropout(self["conv%d" % i](h), self.dropout_ratio)
            x = F.concat((x, h))
        return x


class DenseNet(chainer.Chain):
    def __init__(self, n_layer=2, growth_rate=3, n_class=4, in_ch=4, block=2):
        self.block = block
        in_chs = [in_ch + n_layer * growth_rate * i for i in range(block + 1)]
        super(DenseNet, self).__init__()
        self.add_link("conv1", L.Convolution2D(3, in_ch, 3, 1, 1))
        for i in range(block):
            self.add_link(
                "dense%d" % (i + 2), DenseBlock(in_chs[i], growth_rate, n_layer)
            )
            if not i == block - 1:
                self.add_link(
                    "trans%d" % (i + 2),
                    L.Convolution2D(in_chs[i + 1], in_chs[i + 1], 1),
                )
        self.add_link("bn%d" % (block + 1), L.BatchNormalization(in_chs[block]))
        self.add_link("fc%d" % (block + 2), L.Linear(in_chs[block], n_class))

    def __call__(self, x):
        h = self.conv1(x)
        for i in range(2, self.block + 2):
            h = getattr(self, "dense%d" % i)(h)
            if not i == self.block + 1:
                h = F.average_pooling_2d(getattr(self, "trans%d" % i)(h), 2)
        h = F.relu(getattr(self, "bn%d" % (self.block + 1))(h))
        h = F.average_pooling_2d(h, h.data.shape[2])
        return getattr(self, "fc%d" % (self.block + 2))(h)


class MultiHeadAttention(chainer.Chain):
    """Attention is all you need, as it stood on GitHub in 2017: heads along the batch."""

    def __init__(self, n_units, h=2, dropout=0.1):
        super(MultiHeadAttention, self).__init__()
        with self.init_scope():
            self.W_Q = ConvolutionSentence(n_units, n_units, nobias=True)
            self.W_K = ConvolutionSentence(n_units, n_units, nobias=True)
            self.W_V = ConvolutionSentence(n_units, n_units, nobias=True)
            self.ln = L.LayerNormalization(n_units, eps=1e-6)
        self.h = h
        self.scale_score = 1.0 / (n_units // h) ** 0.5
        self.dropout = dropout

    def __call__(self, x, mask):
        xp = self.xp
        h = self.h
        Q, K, V = self.W_Q(x), self.W_K(x), self.W_V(x)
        batch, n_units, n_querys = Q.shape
        batch_Q = F.concat(F.split_axis(Q, h, axis=1), axis=0)
        batch_K = F.concat(F.split_axis(K, h, axis=1), axis=0)
        batch_V = F.concat(F.split_axis(V, h, axis=1), axis=0)
        mask = xp.concatenate([mask] * h, axis=0)
        batch_A = F.matmul(batch_Q, batch_K, transa=True) * self.scale_score
        batch_A = F.where(mask, batch_A, xp.full(batch_A.shape, -1e9, "f"))
        batch_A = F.softmax(batch_A, axis=2)
        batch_A = F.where(xp.isnan(batch_A.data), xp.zeros(batch_A.shape, "f"), batch_A)
        batch_A = F.dropout(batch_A, self.dropout)
        C = F.sum(
            F.broadcast_to(
                batch_A[:, None], (batch * h, n_units // h, n_querys, n_querys)
            )
            * batch_V[:, :, None, :],
            axis=3,
        )
        C = F.concat(F.split_axis(C, h, axis=0), axis=1)
        return seq_func(self.ln, C)


def seq_func(func, x):
    batch, units, length = x.shape
    e = F.transpose(x, (0, 2, 1)).reshape(batch * length, units)
    e = func(e)
    return F.transpose(e.reshape((batch, length, -1)), (0, 2, 1))


class ConvolutionSentence(L.Convolution2D):
    def __init__(
        self,
        in_channels,
        out_channels,
        ksize=1,
        stride=1,
        pad=0,
        nobias=False,
        initialW=None,
        initial_bias=None,
    ):
        super(ConvolutionSentence, self).__init__(
            in_channels,
            out_channels,
            ksize,
            stride,
            pad,
            nobias,
            initialW,
            initial_bias,
        )

    def __call__(self, x):
        x = F.expand_dims(x, axis=3)
        y = super(ConvolutionSentence, self).__call__(x)
        y = F.squeeze(y, axis=3)
        return y


class TransformerPE(chainer.Chain):
    def __init__(self, n_vocab, n_units, max_length=9):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(
                n_vocab,
                n_units,
                ignore_label=-1,
                initialW=initializers.Normal(n_units**-0.5),
            )
            self.ff = L.Linear(n_units, n_units)
        self.n_units = n_units
        self.scale_emb = n_units**0.5
        self.initialize_position_encoding(max_length, n_units)

    def initialize_position_encoding(self, length, n_units):
        xp = self.xp
        channels = n_units
        position = xp.arange(length, dtype="f")
        num_timescales = channels // 2
        log_timescale_increment = xp.log(10000.0 / 1.0) / (float(num_timescales) - 1)
        inv_timescales = 1.0 * xp.exp(
            xp.arange(num_timescales).astype("f") * -log_timescale_increment
        )
        scaled_time = xp.expand_dims(position, 1) * xp.expand_dims(inv_timescales, 0)
        signal = xp.concatenate([xp.sin(scaled_time), xp.cos(scaled_time)], axis=1)
        signal = xp.reshape(signal, [1, length, channels])
        self.position_encoding_block = xp.transpose(signal, (0, 2, 1))

    def __call__(self, x):
        e = F.transpose(self.embed(x) * self.scale_emb, (0, 2, 1))
        e += self.xp.array(self.position_encoding_block[:, :, : x.shape[1]])
        mask = (x[:, None, :] >= 0) * (x[:, :, None] >= 0)
        history_mask = self.make_history_mask(x)
        att = F.matmul(e, e, transa=True)
        att = F.where(mask * history_mask, att, self.xp.full(att.shape, -1e9, "f"))
        e = F.matmul(e, F.softmax(att, axis=2), transb=True)
        return self.ff(F.transpose(e, (0, 2, 1)).reshape(-1, self.n_units))

    def make_history_mask(self, block):
        batch, length = block.shape
        arange = self.xp.arange(length)
        history_mask = (arange[None] <= arange[:, None])[None,]
        history_mask = self.xp.broadcast_to(history_mask, (batch, length, length))
        return history_mask


class Autoencoder(chainer.Chain):
    def __init__(self, n_in, n_hidden, activation=F.sigmoid, tied=True):
        super().__init__()
        with self.init_scope():
            self.encoder = L.Linear(n_in, n_hidden)
            self.decoder_bias = L.Bias(axis=1, shape=(n_in,))
        self.activation = activation

    def encode(self, x):
        return self.activation(self.encoder(x))

    def decode(self, h):
        return self.decoder_bias(F.matmul(h, self.encoder.W))

    def __call__(self, x):
        return self.decode(self.encode(x))


class MultiBox(chainer.Chain):
    def __init__(self, n_class=3, aspect_ratios=((2,), (2, 3)), initialW=None):
        self.n_class = n_class
        super(MultiBox, self).__init__()
        init = {
            "initialW": initialW or initializers.LeCunUniform(),
            "initial_bias": initializers.Zero(),
        }
        with self.init_scope():
            self.body = L.Convolution2D(3, 4, 3, pad=1, **init)
            self.loc = chainer.ChainList()
            self.conf = chainer.ChainList()
        for ar in aspect_ratios:
            n = (len(ar) + 1) * 2
            self.loc.add_link(L.Convolution2D(4, n * 4, 3, pad=1, **init))
            self.conf.add_link(L.Convolution2D(4, n * self.n_class, 3, pad=1, **init))

    def forward(self, x):
        x = self.body(x)
        xs = [x, F.max_pooling_2d(x, 2)]
        mb_locs = []
        mb_confs = []
        for i, x in enumerate(xs):
            mb_loc = self.loc[i](x)
            mb_loc = F.transpose(mb_loc, (0, 2, 3, 1))
            mb_loc = F.reshape(mb_loc, (mb_loc.shape[0], -1, 4))
            mb_locs.append(mb_loc)
            mb_conf = self.conf[i](x)
            mb_conf = F.transpose(mb_conf, (0, 2, 3, 1))
            mb_conf = F.reshape(mb_conf, (mb_conf.shape[0], -1, self.n_class))
            mb_confs.append(mb_conf)
        return F.concat(mb_locs, axis=1), F.concat(mb_confs, axis=1)


class Seq2seqStateful(chainer.Chain):
    """Encoder and decoder with states handed over by set_state."""

    def __init__(self, n_vocab=11, n_units=4):
        super().__init__(
            embed=L.EmbedID(n_vocab, n_units),
            encoder=L.LSTM(n_units, n_units),
            decoder=L.LSTM(n_units, n_units),
            out=L.Linear(n_units, n_vocab),
        )
        self.n_units = n_units

    def reset(self):
        self.encoder.reset_state()
        self.decoder.reset_state()

    def __call__(self, xs, ts):
        self.reset()
        for i in range(xs.shape[1]):
            self.encoder(self.embed(xs[:, -1 - i]))
        self.decoder.set_state(self.encoder.c, self.encoder.h)
        loss = 0.0
        word = Variable(np.zeros(len(xs), dtype=np.int32))
        for i in range(ts.shape[1]):
            y = self.out(self.decoder(self.embed(word)))
            loss += F.softmax_cross_entropy(y, ts[:, i])
            word = ts[:, i]
        return loss, self.decoder.h


class SNConvolution2D(L.Convolution2D):
    def __init__(self, in_channels, out_channels, ksize, stride=1, pad=0):
        super(SNConvolution2D, self).__init__(
            in_channels, out_channels, ksize, stride, pad
        )
        self.u = np.random.normal(size=(1, out_channels)).astype(dtype="f")
        self.register_persistent("u")

    @property
    def W_bar(self):
        W_mat = self.W.reshape(self.W.shape[0], -1)
        sigma = F.sqrt(F.sum(F.square(F.matmul(self.u, W_mat))))
        return self.W / sigma

    def __call__(self, x):
        return F.convolution_2d(x, self.W_bar, self.b, self.stride, self.pad)


class SNDiscriminator(chainer.Chain):
    def __init__(self, ch=4):
        super(SNDiscriminator, self).__init__()
        with self.init_scope():
            self.c0 = SNConvolution2D(3, ch, 3, 1, 1)
            self.l = L.Linear(ch, 1)

    def __call__(self, x):
        h = F.leaky_relu(self.c0(x))
        return self.l(F.sum(h, axis=(2, 3)))


class Clipped(chainer.Chain):
    """Writes over its weights in each call."""

    def __init__(self):
        super(Clipped, self).__init__()
        with self.init_scope():
            self.l = L.Linear(3, 2)

    def __call__(self, x):
        self.l.W.array[...] = np.clip(self.l.W.array, -0.01, 0.01)
        return self.l(x)


class Variational(chainer.Chain):
    """The autoencoder of Chainer's examples."""

    def __init__(self, n_in, n_latent, n_h):
        super().__init__()
        with self.init_scope():
            self.le1 = L.Linear(n_in, n_h)
            self.le2_mu = L.Linear(n_h, n_latent)
            self.le2_ln_var = L.Linear(n_h, n_latent)
            self.ld1 = L.Linear(n_latent, n_h)
            self.ld2 = L.Linear(n_h, n_in)

    def encode(self, x):
        h1 = F.tanh(self.le1(x))
        return self.le2_mu(h1), self.le2_ln_var(h1)

    def decode(self, z, sigmoid=True):
        h1 = F.tanh(self.ld1(z))
        h2 = self.ld2(h1)
        return F.sigmoid(h2) if sigmoid else h2

    def forward(self, x):
        mu, ln_var = self.encode(x)
        return self.decode(F.gaussian(mu, ln_var), sigmoid=False)


class Averaged(chainer.Chain):
    """Divides by how many numbers there are."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(7, 5)

    def forward(self, x):
        y = F.tanh(self.l(x))
        return y - F.sum(y) / y.size
