# ruff: noqa: E501
"""What people get wrong with tied weights, and other ways to tie them."""

from tests.score.case import Mistake, Right

TOP = ("", "the network", "output", "the output")
TIED = r"tie|tied|shar|transpos|decod|gradient"
REFINED = ("refine", *TOP, "the input of refine")

MISTAKES = (
    Mistake(
        "default slope",
        "jax",
        (("h = jax.nn.leaky_relu(self.down1(x), 0.2)", "h = jax.nn.leaky_relu(self.down1(x))"),),
        ("the input of enc2", *TOP),
        (r"leaky|slope", r"0\.01|1e-0?2"),
        True,
    ),
    Mistake(
        "square weight not transposed",
        "jax",
        (("z @ self.mixing.kernel.T", "z @ self.mixing.kernel"),),
        (*TOP, "mix.weight", "mix"),
        (r"transpos|\.t\b",),
        True,
    ),
    Mistake(
        "weight reshaped instead of transposed",
        "jax",
        (("h @ self.down2.kernel.T", "h @ self.down2.kernel.reshape(4, 6)"),),
        (*TOP, "enc2.weight", "enc2"),
        (r"transpos|reshap",),
        True,
    ),
    Mistake(
        "no gradient through the decoder's weight",
        "jax",
        (("h @ self.down1.kernel.T +", "h @ jax.lax.stop_gradient(self.down1.kernel[...]).T +"),),
        ("enc1.weight", "enc1"),
        (r"stop|detach|gradient|tie", r"stop|detach|no gradient|once|tie|cut"),
        False,
    ),
    Mistake(
        "decoder with a weight of its own",
        "jax",
        (
            (
                "        self.bias_up1 = nnx.Param(jnp.zeros(9))\n",
                "        self.bias_up1 = nnx.Param(jnp.zeros(9))\n        self.up2 = nnx.Param(self.down2.kernel.T)\n",
            ),
            ("h @ self.down2.kernel.T", "h @ self.up2"),
            (
                '    net.bias_up2[...] = weights["dec_bias2"]\n',
                '    net.up2[...] = weights["enc2.weight"]\n    net.bias_up2[...] = weights["dec_bias2"]\n',
            ),
        ),
        ("enc2.weight", "enc2"),
        (r"tie|tied|shar|up2",),
        False,
    ),
    Mistake(
        "shared layer used once",
        "jax",
        (("for _ in range(2):", "for _ in range(1):"),),
        REFINED,
        (r"once|twice|calls?|times|\b2\b|\b1\b|missing|second",),
        True,
    ),
    Mistake(
        "shared layer without its shortcut",
        "jax",
        (
            (
                "            z = z + jnp.tanh(self.shared(z))\n",
                "            z = jnp.tanh(self.shared(z))\n",
            ),
        ),
        REFINED,
        (r"shortcut|residual|sum|skip|add|\+|without|output of mix",),
        True,
    ),
    Mistake(
        "bias of the decoder left out",
        "jax",
        (("h @ self.down2.kernel.T + self.bias_up2", "h @ self.down2.kernel.T"),),
        (*TOP, "dec_bias2"),
        (r"bias", r"no |not |without|missing|unused|left out|zero"),
        True,
    ),
    Mistake(
        "sum over features",
        "jax",
        (
            (
                "return jnp.mean((network(x) - target) ** 2)",
                "return jnp.mean(jnp.sum((network(x) - target) ** 2, axis=-1))",
            ),
        ),
        ("loss",),
        (r"sum|\b9(\.0)?\b", r"mean|9|axis|feature"),
        False,
    ),
    Mistake(
        "square weight not transposed",
        "chainer",
        (("h = F.matmul(z, self.l3.W)", "h = F.linear(z, self.l3.W)"),),
        (*TOP, "mix.weight", "mix"),
        (r"transpos|\.t\b",),
        True,
    ),
    Mistake(
        "no gradient through the decoder's weight",
        "chainer",
        (("F.linear(h, self.l2.W.T, self.b2)", "F.linear(h, self.l2.W.array.T, self.b2)"),),
        ("enc2.weight", "enc2"),
        (r"stop|detach|gradient|tie", r"stop|detach|no gradient|once|tie|cut|unchain"),
        False,
    ),
    Mistake(
        "relu in the decoder",
        "chainer",
        (("h = F.leaky_relu(F.linear(", "h = F.relu(F.linear("),),
        TOP,
        (r"(?<!leaky_)(?<!leaky )relu", r"leaky|slope|0\.2"),
        True,
    ),
    Mistake(
        "second call without its tanh",
        "chainer",
        (
            (
                "        z = z + F.tanh(self.again(z))\n        h = F.matmul",
                "        z = z + self.again(z)\n        h = F.matmul",
            ),
        ),
        REFINED,
        (r"tanh", r"no |not |without|missing|identity|instead"),
        True,
    ),
    Mistake(
        "bias of the decoder left out",
        "chainer",
        (("F.linear(h, self.l1.W.T, self.b1)", "F.linear(h, self.l1.W.T, self.b1 * 0)"),),
        (*TOP, "dec_bias1"),
        (r"bias", r"no |not |without|missing|unused|left out|zero|\b0(\.0)?\b"),
        True,
    ),
    Mistake(
        "half the loss",
        "chainer",
        (
            (
                "return F.mean_squared_error(network(x), t)",
                "return 0.5 * F.mean_squared_error(network(x), t)",
            ),
        ),
        ("loss",),
        (r"0\.5|half|\b2(\.0)?\b",),
        False,
    ),
)

TRANSPOSE = """class Transposed(nnx.Module):
    \"\"\"The transpose of a layer, with a bias of its own.\"\"\"

    def __init__(self, layer, features):
        self.layer = layer
        self.bias = nnx.Param(jnp.zeros(features))

    def __call__(self, x):
        return jnp.einsum("no,io->ni", x, self.layer.kernel[...]) + self.bias


class Autoencoder"""

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "a module for the transpose",
        "jax",
        (
            ("class Autoencoder", TRANSPOSE),
            ("self.bias_up2 = nnx.Param(jnp.zeros(6))", "self.up2 = Transposed(self.down2, 6)"),
            ("self.bias_up1 = nnx.Param(jnp.zeros(9))", "self.up1 = Transposed(self.down1, 9)"),
            ("h @ self.down2.kernel.T + self.bias_up2", "self.up2(h)"),
            ("h @ self.down1.kernel.T + self.bias_up1", "self.up1(h)"),
            ("net.bias_up2[...]", "net.up2.bias[...]"),
            ("net.bias_up1[...]", "net.up1.bias[...]"),
        ),
    ),
    Right(
        "weights contracted by einsum",
        "jax",
        (("z @ self.mixing.kernel.T", 'jnp.einsum("no,io->ni", z, self.mixing.kernel[...])'),),
    ),
    Right(
        "shared layer twice in a list",
        "jax",
        (
            (
                "self.bias_up2 = nnx.Param(jnp.zeros(6))",
                "self.bias_up2 = nnx.Param(jnp.zeros(6))\n        self.steps = nnx.List([self.shared, self.shared])",
            ),
            (
                "        for _ in range(2):\n            z = z + jnp.tanh(self.shared(z))\n",
                "        for step in self.steps:\n            z = z + jnp.tanh(step(z))\n",
            ),
        ),
    ),
    Right(
        "shared layer in a loop of lax",
        "jax",
        (
            (
                "        for _ in range(2):\n            z = z + jnp.tanh(self.shared(z))\n",
                "        w, b = self.shared.kernel[...], self.shared.bias[...]\n"
                "        z = jax.lax.fori_loop(0, 2, lambda _, z: z + jnp.tanh(z @ w + b), z)\n",
            ),
        ),
    ),
    Right(
        "registered backwards",
        "jax",
        (
            ("        self.down1 = nnx.Linear(9, 6, rngs=rngs)\n", ""),
            ("        self.down2 = nnx.Linear(6, 4, rngs=rngs)\n", ""),
            ("        self.mixing = nnx.Linear(4, 4, rngs=rngs)\n", ""),
            (
                "        self.bias_up1 = nnx.Param(jnp.zeros(9))\n",
                "        self.bias_up1 = nnx.Param(jnp.zeros(9))\n"
                "        self.mixing = nnx.Linear(4, 4, rngs=rngs)\n"
                "        self.down2 = nnx.Linear(6, 4, rngs=rngs)\n"
                "        self.down1 = nnx.Linear(9, 6, rngs=rngs)\n",
            ),
        ),
    ),
    Right(
        "weights of its own as a table",
        "jax",
        (
            (
                "self.bias_up2 = nnx.Param(jnp.zeros(6))",
                "self.bias_up2 = nnx.Param(jnp.zeros(6))\n        self.scales = nnx.Variable(jnp.ones(3))",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "transposed by a function",
        "chainer",
        (("F.linear(h, self.l1.W.T, self.b1)", "F.linear(h, F.transpose(self.l1.W), self.b1)"),),
    ),
    Right(
        "bias links",
        "chainer",
        (
            (
                "self.b2 = chainer.Parameter(np.zeros(6, np.float32))",
                "self.b2 = L.Bias(shape=(6,))",
            ),
            ("F.linear(h, self.l2.W.T, self.b2)", "self.b2(F.matmul(h, self.l2.W))"),
            ("port.b2.array[...]", "port.b2.b.array[...]"),
        ),
    ),
    Right(
        "shared link in a loop",
        "chainer",
        (
            (
                "        z = z + F.tanh(self.again(z))\n        z = z + F.tanh(self.again(z))\n",
                "        for link in (self.again, self.again):\n            z = F.tanh(link(z)) + z\n",
            ),
        ),
    ),
    Right(
        "slope by its formula",
        "chainer",
        (("h = F.leaky_relu(self.l1(x))", "h = self.l1(x)\n        h = F.maximum(h, 0.2 * h)"),),
    ),
)
