"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

BLOCKS = ("layer1.0", "layer1.1", "layer2.0", "layer2.1")
NORMS = ("bn1", *(f"{block}.bn{i}" for block in BLOCKS for i in (1, 2)), "layer2.0.downsample.1")

MISTAKES = (
    Mistake(
        "stride in the second convolution",
        "jax",
        (
            (
                "self.conv_1 = conv(cin, cout, 3, stride, rngs=rngs)",
                "self.conv_1 = conv(cin, cout, 3, rngs=rngs)",
            ),
            (
                "self.conv_2 = conv(cout, cout, 3, rngs=rngs)",
                "self.conv_2 = conv(cout, cout, 3, stride, rngs=rngs)",
            ),
        ),
        ("layer2.0.conv1", "layer2.0.conv2", "layer2.0"),
        (r"stride",),
        True,
    ),
    Mistake(
        "SAME throughout",
        "jax",
        (("padding=((pad, pad), (pad, pad))", 'padding="SAME"'),),
        ("layer2.0.conv1",),
        (r"pad", r"same|asymmetric|\(0, ?1\)|one side"),
        True,
    ),
    Mistake(
        "epsilon outside the root",
        "jax",
        (("inv = jax.lax.rsqrt(var + self.eps)", "inv = 1 / (jnp.sqrt(var) + self.eps)"),),
        NORMS,
        (r"eps", r"root|sqrt|outside|standard deviation|std"),
        True,
    ),
    Mistake(
        "biased running variance",
        "jax",
        (("self._update(mean, var * (n / (n - 1)))", "self._update(mean, var)"),),
        NORMS,
        (r"(?<!un)biased",),
        False,
    ),
    Mistake(
        "normalised by the unbiased variance",
        "jax",
        (
            (
                "mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))",
                "mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2), ddof=1)",
            ),
            ("self._update(mean, var * (n / (n - 1)))", "self._update(mean, var)"),
        ),
        NORMS,
        (r"unbiased|n ?- ?1|ddof|bessel",),
        False,
    ),
    Mistake(
        "running statistics in training",
        "jax",
        (
            ("self.use_running_average = False", "self.use_running_stats = True"),
            ("if self.use_running_average:", "if self.use_running_stats:"),
        ),
        NORMS,
        (r"running|frozen|evaluation",),
        False,
    ),
    Mistake(
        "norm of the stem left out in evaluation only",
        "jax",
        (
            (
                "mean, var = self.running_mean[...], self.running_var[...]",
                "mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))",
            ),
        ),
        NORMS,
        (r"batch('s)? statistics|batch statistics|statistics of the batch|of the batch",),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "blocks by name",
        "jax",
        (
            (
                "        plan = [(4, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1)]\n"
                "        self.blocks = nnx.List([Block(*shape, rngs=rngs) for shape in plan])\n"
                "        self.head = nnx.Linear(8, 6, rngs=rngs)\n",
                "        self.head = nnx.Linear(8, 6, rngs=rngs)\n"
                "        self.d = Block(8, 8, 1, rngs=rngs)\n"
                "        self.c = Block(4, 8, 2, rngs=rngs)\n"
                "        self.b = Block(4, 4, 1, rngs=rngs)\n"
                "        self.a = Block(4, 4, 1, rngs=rngs)\n",
            ),
            ("for block in self.blocks:", "for block in (self.a, self.b, self.c, self.d):"),
        ),
    ),
    Right(
        "scale and shift of the norm in one",
        "jax",
        (
            (
                "return (x - mean) * inv * self.gamma[...] + self.beta[...]",
                "a = inv * self.gamma[...]\n        return x * a + (self.beta[...] - mean * a)",
            ),
        ),
    ),
    Right(
        "shortcut by strided pixels and a product",
        "jax",
        (
            (
                "shortcut = self.proj_norm(self.proj(x))",
                'shortcut = self.proj_norm(jnp.einsum("nhwi,io->nhwo", x[:, ::2, ::2], self.proj.kernel[0, 0]))',
            ),
        ),
    ),
    Right(
        "parameters of the norm with axes of size one",
        "jax",
        (
            ("nnx.Param(jnp.ones(c))", "nnx.Param(jnp.ones((1, 1, 1, c)))"),
            ("nnx.Param(jnp.zeros(c))", "nnx.Param(jnp.zeros((1, 1, 1, c)))"),
        ),
    ),
    Right(
        "convolution by lax",
        "jax",
        (
            (
                "y = self.norm_2(self.conv_2(y))",
                "y = jax.lax.conv_general_dilated(\n"
                '            y, self.conv_2.kernel[...], (1, 1), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"))\n'
                "        y = self.norm_2(y)",
            ),
        ),
    ),
    Right(
        "pooling kept as a picture, and reshaped",
        "jax",
        (
            (
                "x = jnp.mean(x, axis=(1, 2))",
                "x = nnx.avg_pool(x, x.shape[1:3]).reshape(x.shape[0], -1)",
            ),
        ),
    ),
)
