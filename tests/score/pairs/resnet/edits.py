"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

BLOCKS = ("layer1.0", "layer1.1", "layer2.0", "layer2.1")
NORMS = ("bn1", *(f"{block}.bn{i}" for block in BLOCKS for i in (1, 2)), "layer2.0.downsample.1")
STEM_NORM = ("bn1",)

MISTAKES = (
    Mistake(
        "no activation after the sum",
        "jax",
        (("return nnx.relu(y + shortcut)", "return y + shortcut"),),
        (*BLOCKS, *(f"{block}.relu" for block in BLOCKS), ""),
        (r"relu|activation",),
        True,
    ),
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
        "shortcut without its norm",
        "jax",
        (("self.proj_norm(self.proj(x))", "self.proj(x)"),),
        ("layer2.0", "layer2.0.downsample", "layer2.0.downsample.1"),
        (
            r"norm|downsample\.1|not called|left out|without|missing|skipped|bn2 \+ the output of downsample\.0",
        ),
        True,
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
    Mistake(
        "default epsilon of the first norm",
        "chainer",
        (("self.bn1 = L.BatchNormalization(4, eps=1e-5)", "self.bn1 = L.BatchNormalization(4)"),),
        STEM_NORM,
        (r"eps", r"2e-0?5"),
        True,
    ),
    Mistake(
        "slower running statistics",
        "chainer",
        (
            (
                "self.bn2 = L.BatchNormalization(n_out, eps=1e-5)",
                "self.bn2 = L.BatchNormalization(n_out, decay=0.99, eps=1e-5)",
            ),
        ),
        tuple(f"{block}.bn2" for block in BLOCKS),
        (r"momentum|decay", r"0\.01|0\.99"),
        False,
    ),
    Mistake(
        "running variances not copied",
        "chainer",
        (("    bn.avg_var[...] = source.running_var.numpy()\n", ""),),
        (*NORMS, *(f"{norm}.running_var" for norm in NORMS)),
        (r"running_var|avg_var|running variance|statistics|start|not (copied|loaded)|all 1|ones",),
        True,
    ),
    Mistake(
        "norms of a block swapped while copying",
        "chainer",
        (
            (
                "    _copy_bn(block.bn1, source.bn1)\n    _copy_bn(block.bn2, source.bn2)\n",
                "    _copy_bn(block.bn1, source.bn2)\n    _copy_bn(block.bn2, source.bn1)\n",
            ),
        ),
        (
            *(f"{block}.bn{i}" for block in BLOCKS for i in (1, 2)),
            *BLOCKS,
            *(f"{block}.bn{i}.weight" for block in BLOCKS for i in (1, 2)),
        ),
        (r"swap|exchang|bn1.*bn2|bn2.*bn1|weights? of|values of",),
        True,
    ),
    Mistake(
        "dropout left in the head",
        "chainer",
        (("return self.fc(h)", "return self.fc(F.dropout(h))"),),
        ("", "fc"),
        (r"dropout|random|mask|not deterministic",),
        False,
    ),
    Mistake(
        "classes copied in reverse",
        "chainer",
        (
            (
                "np.asarray(reference.fc.weight.detach())",
                "np.asarray(reference.fc.weight.detach())[::-1]",
            ),
        ),
        ("fc", "fc.weight"),
        (r"revers|flip|order|permut|rows|weight",),
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
    Right("as it is", "chainer"),
    Right(
        "shortcut first, and the links in another order",
        "chainer",
        (
            ("            self.conv2 = L.Convolution2D(n_out, n_out, 3, 1, 1, nobias=True)\n", ""),
            (
                "            self.conv1 = L.Convolution2D(n_in, n_out, 3, stride, 1, nobias=True)\n",
                "            self.conv2 = L.Convolution2D(n_out, n_out, 3, 1, 1, nobias=True)\n"
                "            self.conv1 = L.Convolution2D(n_in, n_out, 3, stride, 1, nobias=True)\n",
            ),
            (
                "        h = F.relu(self.bn1(self.conv1(x)))\n        h = self.bn2(self.conv2(h))\n        if self.project:\n            x = self.bn3(self.conv3(x))\n        return F.relu(h + x)\n",
                "        y = self.bn3(self.conv3(x)) if self.project else x\n        h = F.relu(self.bn1(self.conv1(x)))\n        return F.relu(y + self.bn2(self.conv2(h)))\n",
            ),
        ),
    ),
    Right(
        "shortcut cut out before the product",
        "chainer",
        (
            (
                "x = self.bn3(self.conv3(x))",
                "x = self.bn3(F.convolution_2d(x[:, :, ::2, ::2], self.conv3.W))",
            ),
        ),
    ),
    Right(
        "mean over the axes",
        "chainer",
        (("h = F.average_pooling_2d(h, h.shape[2:])", "h = F.mean(h, axis=(2, 3))"),),
    ),
    Right(
        "maximum with zero for the activation",
        "chainer",
        (("return F.relu(h + x)", "return F.maximum(h + x, self.xp.zeros_like(x.array))"),),
    ),
    Right(
        "norm called functionally",
        "chainer",
        (
            (
                "        h = F.relu(self.bn1(self.conv1(x)))\n        for block",
                "        h = self.conv1(x)\n"
                "        if chainer.config.train:\n"
                "            b = self.bn1\n"
                "            h = F.batch_normalization(\n"
                "                h, b.gamma, b.beta, eps=b.eps, running_mean=b.avg_mean, running_var=b.avg_var, decay=b.decay)\n"
                "        else:\n"
                "            h = F.fixed_batch_normalization(\n"
                "                h, self.bn1.gamma, self.bn1.beta, self.bn1.avg_mean, self.bn1.avg_var, eps=1e-5)\n"
                "        h = F.relu(h)\n"
                "        for block",
            ),
        ),
    ),
)
