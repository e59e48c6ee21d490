"""Both networks on Chainer."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class Gen(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l0 = L.Linear(7, 30)
            self.dc1 = L.Deconvolution2D(5, 4, 4, stride=2, pad=1)
            self.c2 = L.Convolution2D(4, 2, 3, pad=1)

    def forward(self, z):
        h = F.reshape(F.relu(self.l0(z)), (len(z), 5, 3, 2))
        h = F.relu(self.dc1(h))
        return F.tanh(self.c2(h))


class Dis(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.c0 = L.Convolution2D(2, 5, 3, stride=2, pad=1)
            self.l1 = L.Linear(30, 1)

    def forward(self, x):
        h = F.leaky_relu(self.c0(x))
        return F.squeeze(self.l1(h), axis=1)


class GAN(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.gen, self.dis = Gen(), Dis()

    def forward(self, z, real):
        fake = self.gen(z)
        return {
            "image": fake,
            "real": self.dis(real),
            "fake": self.dis(fake.array),
            "fooled": self.dis(fake),
        }


def bce(scores, target):
    return F.mean(F.softplus(scores) - scores * target)


def loss(network, z, real, target):
    out = network(z, real)
    dis = bce(out["real"], target) + bce(out["fake"], 0.0)
    gen = F.mean(F.softplus(-out["fooled"]))
    return dis / 2 + gen


def network(reference):
    gan = GAN()
    generator, discriminator = reference.generator, reference.discriminator
    for link, layer in (
        (gan.gen.l0, generator.fc),
        (gan.gen.dc1, generator.up),
        (gan.gen.c2, generator.to_image),
        (gan.dis.c0, discriminator.conv),
        (gan.dis.l1, discriminator.fc),
    ):
        link.W.array[...] = layer.weight.detach().numpy()
        link.b.array[...] = layer.bias.detach().numpy()
    return gan
