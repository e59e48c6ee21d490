# ruff: noqa: E501
"""What people get wrong with a generator and a discriminator, and other ways to write them."""

from tests.score.case import Mistake, Right

LAID = r"order|transpos|channel|nhwc|nchw|flatten|reshap|permut"
DETACHED = r"detach|stop|gradient"

MISTAKES = (
    Mistake(
        "kernel of the transposed convolution not flipped",
        "jax",
        (('np.flip(w["generator.up.weight"], (2, 3))', 'w["generator.up.weight"]'),),
        ("generator.up", "generator.up.weight"),
        (r"flip",),
        True,
    ),
    Mistake(
        "reshaped channels last",
        "jax",
        (
            ("reshape(-1, 5, 3, 2)\n", "reshape(-1, 3, 2, 5)\n"),
            ("        x = jnp.transpose(x, (0, 2, 3, 1))\n", ""),
        ),
        ("the input of generator.up", "the input of up", "generator"),
        (LAID,),
        True,
    ),
    Mistake(
        "flattened channels last",
        "jax",
        (("jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)", "x.reshape(x.shape[0], -1)"),),
        ("the input of discriminator.fc", "the input of fc", "discriminator"),
        (LAID,),
        True,
    ),
    Mistake(
        "default slope",
        "jax",
        (("nnx.leaky_relu(self.conv(x), 0.2)", "nnx.leaky_relu(self.conv(x))"),),
        ("the input of discriminator.fc", "the input of fc", "discriminator"),
        (r"leaky|slope", r"0\.01|1e-0?2"),
        True,
    ),
    Mistake(
        "SAME padding",
        "jax",
        (("strides=(2, 2), padding=1, rngs", 'strides=(2, 2), padding="SAME", rngs'),),
        ("discriminator.conv",),
        (r"pad", r"same|\(0, ?1\)|asymmetric|\(1, ?1\)"),
        True,
    ),
    Mistake(
        "generator not detached",
        "jax",
        (("constant = jax.lax.stop_gradient(fake)", "constant = fake"),),
        ("", "the network", "generator", "the input of discriminator", "discriminator"),
        (DETACHED, r"not|no |without|missing|flows|detach"),
        False,
    ),
    Mistake(
        "generator detached in its own loss",
        "jax",
        (('"fooled": self.d(fake)', '"fooled": self.d(constant)'),),
        ("", "the network", "generator", "the input of discriminator", "discriminator"),
        (DETACHED, r"detach|stop|no gradient|cut"),
        False,
    ),
    Mistake(
        "no tanh",
        "jax",
        (("return jnp.tanh(self.rgb(x))", "return self.rgb(x)"),),
        (
            "generator",
            "the output of generator",
            "output",
            "generator.to_image",
            "the input of discriminator",
        ),
        (r"tanh", r"no |not |without|missing|identity|instead"),
        True,
    ),
    Mistake(
        "real labels of one",
        "jax",
        (('bce(out["real"], target)', 'bce(out["real"], jnp.ones_like(target))'),),
        ("loss",),
        (r"target|label|\b1(\.0)?\b|\bones?\b", r"target|label|\b1(\.0)?\b|\bones?\b|real"),
        False,
    ),
    Mistake(
        "loss of the discriminator not halved",
        "jax",
        (("return 0.5 * d_loss + g_loss", "return d_loss + g_loss"),),
        ("loss",),
        (r"0\.5|half|\b2(\.0)?\b|\b1(\.0)?\b",),
        False,
    ),
    Mistake(
        "saturating loss of the generator",
        "jax",
        (
            ("g_loss = jnp.mean(bce(", "g_loss = -jnp.mean(bce("),
            ("jnp.ones_like(target)))", "jnp.zeros_like(target)))"),
        ),
        ("loss",),
        (r"saturat|sign|target|label|minus|zeros?\b|negat",),
        False,
    ),
    Mistake(
        "generator not detached",
        "chainer",
        (("self.dis(fake.array)", "self.dis(fake)"),),
        ("", "the network", "generator", "the input of discriminator", "discriminator"),
        (DETACHED, r"not|no |without|missing|flows|detach"),
        False,
    ),
    Mistake(
        "no activation after the transposed convolution",
        "chainer",
        (("h = F.relu(self.dc1(h))", "h = self.dc1(h)"),),
        ("the input of generator.to_image", "the input of to_image", "generator"),
        (r"relu", r"no |not |without|missing|identity|instead"),
        True,
    ),
    Mistake(
        "sigmoid for tanh",
        "chainer",
        (("F.tanh(self.c2(h))", "F.sigmoid(self.c2(h))"),),
        (
            "generator",
            "the output of generator",
            "output",
            "generator.to_image",
            "the input of discriminator",
        ),
        (r"sigmoid", r"tanh"),
        True,
    ),
    Mistake(
        "rows and columns exchanged",
        "chainer",
        (
            (
                "F.reshape(F.relu(self.l0(z)), (len(z), 5, 3, 2))",
                "F.swapaxes(F.reshape(F.relu(self.l0(z)), (len(z), 5, 2, 3)), 2, 3)",
            ),
        ),
        ("the input of generator.up", "the input of up", "generator"),
        (rf"{LAID}|row|axes|axis",),
        True,
    ),
    Mistake(
        "sum of the scores",
        "chainer",
        (
            (
                "return F.mean(F.softplus(scores) - scores * target)",
                "return F.sum(F.softplus(scores) - scores * target)",
            ),
        ),
        ("loss",),
        (r"sum|\b3(\.0)?\b", r"mean|3"),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "real and fake at once",
        "jax",
        (
            (
                '            "real": self.d(real),\n            "fake": self.d(constant),\n',
                '            "real": both[: len(real)],\n            "fake": both[len(real) :],\n',
            ),
            (
                "        constant = jax.lax.stop_gradient(fake)\n",
                "        constant = jax.lax.stop_gradient(fake)\n"
                "        both = self.d(jnp.concatenate([real, constant]))\n",
            ),
        ),
    ),
    Right(
        "outputs in a tuple",
        "jax",
        (
            (
                """        return {
            "image": fake,
            "real": self.d(real),
            "fake": self.d(constant),
            "fooled": self.d(fake),
        }
""",
                """        return fake, (self.d(real), self.d(constant), self.d(fake))
""",
            ),
            (
                "    out = network(z, real)\n",
                '    _, scores = network(z, real)\n    out = dict(zip(("real", "fake", "fooled"), scores))\n',
            ),
        ),
    ),
    Right(
        "rows of the projection in flax's order",
        "jax",
        (
            ("reshape(-1, 5, 3, 2)\n", "reshape(-1, 3, 2, 5)\n"),
            ("        x = jnp.transpose(x, (0, 2, 3, 1))\n", ""),
            (
                'both.g.project.kernel[...] = w["generator.fc.weight"].T',
                "rows = np.arange(30).reshape(5, 3, 2).transpose(1, 2, 0).ravel()\n"
                '    both.g.project.kernel[...] = w["generator.fc.weight"][rows].T',
            ),
            (
                'both.g.project.bias[...] = w["generator.fc.bias"]',
                'both.g.project.bias[...] = w["generator.fc.bias"][rows]',
            ),
        ),
    ),
    Right(
        "transposed convolution without a flip",
        "jax",
        (
            (
                'strides=(2, 2), padding="SAME", rngs=rngs)\n        self.rgb',
                'strides=(2, 2), padding="SAME", transpose_kernel=True, rngs=rngs)\n        self.rgb',
            ),
            ('np.flip(w["generator.up.weight"], (2, 3))', 'w["generator.up.weight"]'),
            ("flipped.transpose(2, 3, 0, 1)", "flipped.transpose(2, 3, 1, 0)"),
        ),
    ),
    Right(
        "loss by softplus",
        "jax",
        (
            (
                'jnp.mean(bce(out["fooled"], jnp.ones_like(target)))',
                'jax.nn.softplus(-out["fooled"]).mean()',
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "unchained instead of its array",
        "chainer",
        (
            (
                "        fake = self.gen(z)\n",
                "        fake = self.gen(z)\n        constant = chainer.Variable(fake.array)\n",
            ),
            ("self.dis(fake.array)", "self.dis(constant)"),
        ),
    ),
    Right(
        "discriminator registered first",
        "chainer",
        (("self.gen, self.dis = Gen(), Dis()", "self.dis, self.gen = Dis(), Gen()"),),
    ),
    Right(
        "scores in a list",
        "chainer",
        (
            (
                """        return {
            "image": fake,
            "real": self.dis(real),
            "fake": self.dis(fake.array),
            "fooled": self.dis(fake),
        }
""",
                """        return [fake, self.dis(real), self.dis(fake.array), self.dis(fake)]
""",
            ),
            (
                "    out = network(z, real)\n",
                '    out = dict(zip(("image", "real", "fake", "fooled"), network(z, real)))\n',
            ),
        ),
    ),
    Right(
        "loss by log-sigmoid",
        "chainer",
        (
            (
                'gen = F.mean(F.softplus(-out["fooled"]))',
                'gen = -F.mean(F.log_softmax(F.stack([out["fooled"], 0 * out["fooled"]], axis=1))[:, 0])',
            ),
        ),
    ),
)
