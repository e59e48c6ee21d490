"""The autoencoder in Chainer; it gives back a tuple. Copied by hand."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class VAE(chainer.Chain):
    def __init__(self, n_latent=5):
        super().__init__()
        with self.init_scope():
            # encoder
            self.ec1 = L.Convolution2D(1, 4, 3, 2, 1)
            self.ec2 = L.Convolution2D(4, 6, 3, 2, 1)
            self.le_mu = L.Linear(36, n_latent)
            self.le_ln_var = L.Linear(36, n_latent)
            # decoder
            self.ld = L.Linear(n_latent, 36)
            self.dc1 = L.Deconvolution2D(6, 4, 4, 2, 1)
            self.dc2 = L.Deconvolution2D(4, 1, 4, 2, 1)

    def encode(self, x):
        h = F.leaky_relu(self.ec1(x))
        h = F.leaky_relu(self.ec2(h))
        mu = self.le_mu(h)
        ln_var = self.le_ln_var(h)
        return mu, ln_var

    def decode(self, z):
        h = F.reshape(F.relu(self.ld(z)), (-1, 6, 2, 3))
        h = F.tanh(self.dc1(h))
        return F.sigmoid(self.dc2(h))

    def forward(self, x, eps):
        mu, ln_var = self.encode(x)
        z = mu + F.exp(ln_var / 2) * eps
        return self.decode(z), mu, ln_var


def _copy(link, module):
    link.W.array[...] = module.weight.detach().numpy()
    link.b.array[...] = module.bias.detach().numpy()


def network(reference):
    vae = VAE()
    _copy(vae.ec1, reference.encoder[0])
    _copy(vae.ec2, reference.encoder[2])
    _copy(vae.le_mu, reference.fc_mu)
    _copy(vae.le_ln_var, reference.fc_logvar)
    _copy(vae.ld, reference.decoder_input)
    _copy(vae.dc1, reference.decoder[0])
    _copy(vae.dc2, reference.decoder[2])
    return vae


def loss(network, x, eps, t):
    y, mu, ln_var = network(x, eps)
    rec_loss = -F.sum(t * F.log(y) + (1 - t) * F.log(1 - y)) / len(t)
    kl = F.gaussian_kl_divergence(mu, ln_var) / len(t)
    return rec_loss + 0.25 * kl


OPTIMIZERS = {
    "rmsprop": lambda network: chainer.optimizers.RMSprop(lr=1e-3, alpha=0.9, eps=1e-8).setup(
        network
    ),
}
