"""Chains as people have written them, with their habits."""
# ruff: noqa: RET504, UP008, UP031

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


class AttSeq2Seq(chainer.Chain):
    """An encoder without a state, with attention of its last step over all."""

    def __init__(self, vocab_size, embed_size, hidden_size):
        super(AttSeq2Seq, self).__init__(
            xe=L.EmbedID(vocab_size, embed_size, ignore_label=-1),
            enc=L.StatelessLSTM(embed_size, hidden_size),
            pw=L.Linear(hidden_size, hidden_size),
        )
        self.hidden_size = hidden_size

    def __call__(self, words):
        xp = self.xp
        batch = len(words)
        c = None
        h = Variable(xp.zeros((batch, self.hidden_size), dtype="f"))
        hs = []
        for t in six.moves.range(words.shape[1]):
            c, h = self.enc(c, h, F.tanh(self.xe(words[:, t])))
            hs.append(h)
        hs = F.stack(hs, axis=1)
        w = F.softmax(F.reshape(F.matmul(hs, self.pw(h)[:, :, None]), (batch, -1)))
        att = F.matmul(hs, w[:, :, None], transa=True)
        return F.reshape(att, (batch, self.hidden_size))


class Pix2PixEncoder(chainer.Chain):
    def __init__(self, in_ch, activation=F.leaky_relu):
        self.activation = activation
        layers = {}
        w = chainer.initializers.Normal(0.02)
        layers["c0"] = L.Convolution2D(in_ch, 4, 3, 1, 1, initialW=w)
        layers["c1"] = L.Convolution2D(4, 6, 4, 2, 1, initialW=w)
        super(Pix2PixEncoder, self).__init__(**layers)

    def __call__(self, x):
        hs = [self.c0(x)]
        if self.activation is not None:
            hs = [self.activation(hs[0])]
        for i in range(1, 2):
            hs.append(self["c%d" % i](hs[i - 1]))
        return hs


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
    def __init__(self, n_in, n_out, ksize=3):
        w = math.sqrt(2)
        super(StyleResidual, self).__init__(
            c1=L.Convolution2D(
                n_in, n_out, ksize, 1, 1, initialW=chainer.initializers.HeNormal(w)
            ),
            b1=InstanceNorm(n_out),
        )

    def __call__(self, x):
        h = F.elu(self.b1(self.c1(x)))
        if x.data.shape != h.data.shape:
            xp = chainer.cuda.get_array_module(x.data)
            n, c, hh, ww = x.data.shape
            pad_c = h.data.shape[1] - c
            p = xp.zeros((n, pad_c, hh, ww), dtype=xp.float32)
            x = F.concat((chainer.Variable(p), x))
        return h + x


class FastStyleNet(chainer.Chain):
    def __init__(self):
        super(FastStyleNet, self).__init__(
            r1=StyleResidual(3, 4),
            d1=L.Deconvolution2D(4, 3, 4, stride=2, pad=1),
        )

    def __call__(self, x, test=False):
        return (F.tanh(self.d1(self.r1(x))) + 1) * 127.5


class NamedTwice(chainer.ChainList):
    """Members of a list that are attributes, too."""

    def __init__(self):
        self.head = L.Linear(4, 4)
        super(NamedTwice, self).__init__(self.head, L.Linear(4, 3))

    def __call__(self, x):
        return self[1](F.relu(self.head(x)))


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
            self.bn = L.BatchNormalization(
                in_channels * depth_multiplier, use_gamma=False
            )
            self.pointwise = L.Convolution2D(
                in_channels * depth_multiplier, 8, 1, nobias=True
            )
            self.nd = L.ConvolutionND(2, 8, 4, 3, pad=1)

    def __call__(self, x):
        h = F.clipped_relu(self.bn(self.depthwise(x)), 6.0)
        return self.nd(self.pointwise(h))


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


class Assorted(chainer.Chain):
    """Links and functions that no other network here has."""

    def __init__(self, n=4):
        super(Assorted, self).__init__(
            conv=L.Convolution2D(
                3, n, 3, initialW=initializers.HeNormal(), initial_bias=0.1
            ),
            bn=L.BatchNormalization(n, use_beta=False, initial_gamma=0.5),
            bias=L.Bias(shape=(n,)),
            sentence=ConvolutionSentence(n, n, nobias=True),
            along=L.Convolution1D(n, n, 3, pad=1),
        )

    def __call__(self, x):
        xp = cuda.get_array_module(x)
        h = self.bias(self.bn(self.conv(x)))
        size = h.shape[2:]
        h, indices = F.max_pooling_2d(h, 2, stride=2, return_indices=True)
        h = F.upsampling_2d(h, indices, ksize=2, stride=2, outsize=size)
        h = h.reshape((len(x), h.shape[1], -1))
        h = seq_func(F.tanh, self.along(self.sentence(h)))
        scores = F.matmul(h, h, transb=True)
        scores = scores + xp.identity(h.shape[1], dtype=xp.float32)[None]
        lowest = xp.full(scores.shape, -1e9, "f")
        h = F.sum(F.where(xp.isnan(scores.data), lowest, scores), axis=2)
        h, mean = F.broadcast(h, F.sum(h, axis=1, keepdims=True) / h.shape[1])
        h -= mean
        reporter.report({"mean": F.mean(h)}, self)
        return h


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
