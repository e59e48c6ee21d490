"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

LATENT = ("", "the network", "decoder_input")

MISTAKES = (
    Mistake(
        "variance for deviation",
        "jax",
        (("std = jnp.exp(0.5 * logvar)", "std = jnp.exp(logvar)"),),
        LATENT,
        (r"exp|0\.5|half|deviation|std|sqrt|root|square",),
        True,
    ),
    Mistake(
        "default slope",
        "jax",
        (("nn.leaky_relu(self.conv2(x), negative_slope=0.2)", "nn.leaky_relu(self.conv2(x))"),),
        ("encoder.3", "encoder", ""),
        (r"leaky|slope", r"0\.01|0\.2"),
        True,
    ),
    Mistake(
        "no activation behind the latent layer",
        "jax",
        (("h = nn.relu(self.dense(z))", "h = self.dense(z)"),),
        ("", "the network", "decoder", "decoder.0"),
        (r"relu|activation",),
        True,
    ),
    Mistake(
        "ReLU for tanh",
        "jax",
        (("h = jnp.tanh(self.up1(h))", "h = nn.relu(self.up1(h))"),),
        ("decoder.1", "decoder"),
        (r"relu",),
        True,
    ),
    Mistake(
        "scores for probabilities",
        "jax",
        (
            ("return nn.sigmoid(self.up2(h))", "return self.up2(h)"),
            (
                "bce = -jnp.sum(t * jnp.log(y) + (1 - t) * jnp.log(1 - y), axis=-1)",
                "bce = optax.sigmoid_binary_cross_entropy(y, t).sum(-1)",
            ),
        ),
        ("decoder.3", "decoder", ""),
        (r"sigmoid",),
        True,
    ),
    Mistake(
        "divergence averaged over the latent axes",
        "jax",
        (("return -0.5 * jnp.sum(1 + logvar", "return -0.5 * jnp.mean(1 + logvar"),),
        ("loss",),
        (r"mean|average|divided by 5|times 0\.2\b|0\.05",),
        False,
    ),
    Mistake(
        "divergence without its weight",
        "jax",
        (("bce + 0.25 * kl_divergence", "bce + kl_divergence"),),
        ("loss",),
        (r"0\.25|times 4|\b4 times|factor of 4|weight 1",),
        False,
    ),
    Mistake(
        "square of the mean missing in the divergence",
        "jax",
        (
            (
                "1 + logvar - jnp.square(mu) - jnp.exp(logvar)",
                "1 + logvar - jnp.abs(mu) - jnp.exp(logvar)",
            ),
        ),
        ("loss",),
        (r"square|abs|\*\* ?2|pow|mean",),
        False,
    ),
    Mistake(
        "mean of the pixels",
        "jax",
        (
            (
                "(1 - t) * jnp.log(1 - y), axis=-1)\n    return",
                "(1 - t) * jnp.log(1 - y), axis=-1) / y.shape[-1]\n    return",
            ),
        ),
        ("loss",),
        (r"mean|sum|reduction|divided|96|0\.0104",),
        False,
    ),
    Mistake(
        "epsilon inside the root",
        "jax",
        ((", eps_in_sqrt=False", ""),),
        ("optimizer rmsprop",),
        (r"eps", r"root|sqrt|inside"),
        False,
    ),
    Mistake(
        "decay of the squares",
        "jax",
        ((" decay=0.9,", " decay=0.99,"),),
        ("optimizer rmsprop",),
        (r"alpha|decay|rho|smoothing", r"0\.99"),
        False,
    ),
    Mistake(
        "no gradient through the noise's scale",
        "jax",
        (
            ("import jax.numpy as jnp\n", "import jax\nimport jax.numpy as jnp\n"),
            ("return mu + std * eps", "return mu + jax.lax.stop_gradient(std) * eps"),
        ),
        (*LATENT, "fc_logvar"),
        (r"gradient|detach|stop",),
        False,
    ),
    Mistake(
        "latent sample is the mean",
        "jax",
        (("return mu + std * eps", "return mu"),),
        LATENT,
        (r"noise|eps|without|mean|fc_mu|left out",),
        True,
    ),
    Mistake(
        "another slope",
        "chainer",
        (("h = F.leaky_relu(self.ec1(x))", "h = F.leaky_relu(self.ec1(x), 0.01)"),),
        ("encoder.1", "encoder", ""),
        (r"leaky|slope", r"0\.01|0\.2"),
        True,
    ),
    Mistake(
        "heads swapped while copying",
        "chainer",
        (
            ("_copy(vae.le_mu, reference.fc_mu)", "_copy(vae.le_mu, reference.fc_logvar)"),
            ("_copy(vae.le_ln_var, reference.fc_logvar)", "_copy(vae.le_ln_var, reference.fc_mu)"),
        ),
        ("fc_mu", "fc_logvar", "", "fc_mu.weight", "fc_logvar.weight"),
        (r"swap|exchang|order|fc_mu.*fc_logvar|fc_logvar.*fc_mu|le_mu|le_ln_var",),
        True,
    ),
    Mistake(
        "last layer not copied",
        "chainer",
        (("    _copy(vae.dc2, reference.decoder[2])\n", ""),),
        ("decoder.2", "decoder.2.weight", "decoder.2.bias"),
        (r"not (copied|loaded)|start|seed|weights? differ",),
        True,
    ),
    Mistake(
        "divergence per element",
        "chainer",
        (
            (
                "kl = F.gaussian_kl_divergence(mu, ln_var) / len(t)",
                'kl = F.gaussian_kl_divergence(mu, ln_var, reduce="mean")',
            ),
        ),
        ("loss",),
        (r"mean|average|divided by 5|times 0\.2\b|0\.05",),
        False,
    ),
    Mistake(
        "squared error for cross-entropy",
        "chainer",
        (
            (
                "rec_loss = -F.sum(t * F.log(y) + (1 - t) * F.log(1 - y)) / len(t)",
                "rec_loss = F.sum((t - y) ** 2) / len(t)",
            ),
        ),
        ("loss",),
        (r"squared|mse|l2",),
        False,
    ),
    Mistake(
        "variance for deviation",
        "chainer",
        (("F.exp(ln_var / 2)", "F.exp(ln_var)"),),
        LATENT,
        (r"exp|0\.5|half|deviation|std|sqrt|root|square",),
        True,
    ),
    Mistake(
        "leaky activation in the decoder",
        "chainer",
        (("F.relu(self.ld(z))", "F.leaky_relu(self.ld(z))"),),
        ("", "the network", "decoder", "decoder.0"),
        (r"leaky", r"0\.2"),
        True,
    ),
    Mistake(
        "no bias in a transposed convolution",
        "chainer",
        (
            (
                "self.dc1 = L.Deconvolution2D(6, 4, 4, 2, 1)",
                "self.dc1 = L.Deconvolution2D(6, 4, 4, 2, 1, nobias=True)",
            ),
            (
                "    link.b.array[...] = module.bias.detach().numpy()\n",
                "    if link.b is not None:\n        link.b.array[...] = module.bias.detach().numpy()\n",
            ),
        ),
        ("decoder.0", "decoder.0.bias"),
        (r"bias",),
        True,
    ),
    Mistake(
        "decay of the squares at its default",
        "chainer",
        ((" alpha=0.9,", ""),),
        ("optimizer rmsprop",),
        (r"alpha|decay|rho|smoothing", r"0\.99"),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "flattened channels last, both ways",
        "jax",
        (
            ("x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)", "x = x.reshape(len(x), -1)"),
            ("h = h.reshape(-1, 6, 2, 3).transpose(0, 2, 3, 1)", "h = h.reshape(-1, 2, 3, 6)"),
        ),
    ),
    Right(
        "one layer for mean and variance",
        "jax",
        (
            (
                "        self.mu = nnx.Linear(36, latent, rngs=rngs)\n        self.logvar = nnx.Linear(36, latent, rngs=rngs)\n",
                "        self.stats = nnx.Linear(36, 2 * latent, rngs=rngs)\n",
            ),
            ("return self.mu(x), self.logvar(x)", "return jnp.split(self.stats(x), 2, axis=-1)"),
        ),
    ),
    Right(
        "a tuple instead of a dictionary",
        "jax",
        (
            ('return {"recon": recon, "mu": mu, "logvar": logvar}', "return logvar, mu, recon"),
            ("    out = network(x, eps)\n", "    logvar, mu, recon = network(x, eps)\n"),
            ('out["recon"]', "recon"),
            ('kl_divergence(out["mu"], out["logvar"])', "kl_divergence(mu, logvar)"),
        ),
    ),
    Right(
        "decoder set up first, its layers in reverse",
        "jax",
        (
            (
                "        self.encoder = Encoder(latent, rngs)\n        self.decoder = Decoder(latent, rngs)\n",
                "        self.decoder = Decoder(latent, rngs)\n        self.encoder = Encoder(latent, rngs)\n",
            ),
            (
                "        self.mu = nnx.Linear(36, latent, rngs=rngs)\n        self.logvar = nnx.Linear(36, latent, rngs=rngs)\n",
                "        self.logvar = nnx.Linear(36, latent, rngs=rngs)\n        self.mu = nnx.Linear(36, latent, rngs=rngs)\n",
            ),
        ),
    ),
    Right(
        "loss from the scores, found again by the logit",
        "jax",
        (
            (
                "bce = -jnp.sum(t * jnp.log(y) + (1 - t) * jnp.log(1 - y), axis=-1)",
                "bce = jnp.sum(jnp.where(t > 0.5, -jnp.log(y), -jnp.log1p(-y)), axis=-1)",
            ),
        ),
    ),
    Right(
        "transposed convolution by hand",
        "jax",
        (
            ("import jax.numpy as jnp\n", "import jax\nimport jax.numpy as jnp\n"),
            (
                "return nn.sigmoid(self.up2(h))",
                "y = jax.lax.conv_general_dilated(\n"
                '            h, self.up2.kernel[...], (1, 1), ((2, 2), (2, 2)), (2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))\n'
                "        return nn.sigmoid(y + self.up2.bias[...])",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "a dictionary instead of a tuple",
        "chainer",
        (
            (
                "return self.decode(z), mu, ln_var",
                'return {"y": self.decode(z), "mu": mu, "ln_var": ln_var}',
            ),
            (
                "    y, mu, ln_var = network(x, eps)\n",
                '    out = network(x, eps)\n    y, mu, ln_var = out["y"], out["mu"], out["ln_var"]\n',
            ),
        ),
    ),
    Right(
        "divergence by hand",
        "chainer",
        (
            (
                "F.gaussian_kl_divergence(mu, ln_var) / len(t)",
                "0.5 * F.sum(mu**2 + F.exp(ln_var) - ln_var - 1) / len(t)",
            ),
        ),
    ),
    Right(
        "encoder and decoder as chains",
        "chainer",
        (
            (
                "            self.ec1 = L.Convolution2D(1, 4, 3, 2, 1)\n            self.ec2 = L.Convolution2D(4, 6, 3, 2, 1)\n",
                "            self.enc = chainer.Sequential(\n                L.Convolution2D(1, 4, 3, 2, 1), F.leaky_relu, L.Convolution2D(4, 6, 3, 2, 1), F.leaky_relu)\n",
            ),
            (
                "        h = F.leaky_relu(self.ec1(x))\n        h = F.leaky_relu(self.ec2(h))\n",
                "        h = self.enc(x)\n",
            ),
            ("_copy(vae.ec1, ", "_copy(vae.enc[0], "),
            ("_copy(vae.ec2, ", "_copy(vae.enc[2], "),
        ),
    ),
    Right(
        "one link for mean and variance",
        "chainer",
        (
            (
                "            self.le_mu = L.Linear(36, n_latent)\n            self.le_ln_var = L.Linear(36, n_latent)\n",
                "            self.le = L.Linear(36, 2 * n_latent)\n",
            ),
            (
                "        mu = self.le_mu(h)\n        ln_var = self.le_ln_var(h)\n        return mu, ln_var\n",
                "        return F.split_axis(self.le(h), 2, axis=1)\n",
            ),
            (
                "    _copy(vae.le_mu, reference.fc_mu)\n    _copy(vae.le_ln_var, reference.fc_logvar)\n",
                "    for part, module in enumerate((reference.fc_mu, reference.fc_logvar)):\n        vae.le.W.array[5 * part : 5 * part + 5] = module.weight.detach().numpy()\n        vae.le.b.array[5 * part : 5 * part + 5] = module.bias.detach().numpy()\n",
            ),
        ),
    ),
    Right(
        "activations by the hyperbolic tangent and the logistic function",
        "chainer",
        (("return F.sigmoid(self.dc2(h))", "return 0.5 * (1 + F.tanh(0.5 * self.dc2(h)))"),),
    ),
)
