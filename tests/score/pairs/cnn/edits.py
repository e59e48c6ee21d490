"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

MISTAKES = (
    Mistake(
        "epsilon of another framework",
        "jax",
        (("epsilon=1e-5", "epsilon=1e-3"),),
        ("bn1", "bn2"),
        (r"eps", r"0\.001|1e-0?3"),
        True,
    ),
    Mistake(
        "momentum left at the default",
        "jax",
        (("momentum=0.9, ", ""),),
        ("bn1", "bn2"),
        (r"momentum|decay", r"0\.01|0\.99"),
        False,
    ),
    Mistake(
        "momentum copied as it stands",
        "jax",
        (("momentum=0.9,", "momentum=0.1,"),),
        ("bn1", "bn2"),
        (r"momentum|decay", r"0\.9|0\.1|swap|complement"),
        False,
    ),
    Mistake(
        "biased running variance",
        "jax",
        ((" * n / (n - 1))", ")"),),
        ("bn1", "bn2"),
        (r"(?<!un)biased",),
        False,
    ),
    Mistake(
        "flattened channels last",
        "jax",
        (("        x = jnp.transpose(x, (0, 3, 1, 2))  # torch flattens channels first\n", ""),),
        ("", "fc1", "fc1.weight"),
        (r"flatten|channels.last|nhwc|column|order|permut|layout|axes",),
        True,
    ),
    Mistake(
        "SAME with a stride",
        "jax",
        (("strides=2, padding=((1, 1), (1, 1))", 'strides=2, padding="SAME"'),),
        ("conv2",),
        (r"pad", r"same|asymmetric|\(0, ?1\)|one side"),
        True,
    ),
    Mistake(
        "padding left out of the average",
        "jax",
        (
            (
                "(3, 3), padding=((1, 1), (1, 1)))\n        x = jnp",
                "(3, 3), padding=((1, 1), (1, 1)), count_include_pad=False)\n        x = jnp",
            ),
        ),
        ("", "fc1"),
        (r"count_include_pad|pad",),
        True,
    ),
    Mistake(
        "default slope",
        "jax",
        (
            (
                "jax.nn.leaky_relu(self.norm_b(self.conv_b(x)), 0.1)",
                "jax.nn.leaky_relu(self.norm_b(self.conv_b(x)))",
            ),
        ),
        ("", "fc1"),
        (r"leaky|slope", r"0\.01|0\.1"),
        True,
    ),
    Mistake(
        "activation in front of the norm",
        "jax",
        (("nnx.relu(self.norm_a(self.conv_a(x)))", "self.norm_a(nnx.relu(self.conv_a(x)))"),),
        ("", "bn1"),
        (r"relu",),
        True,
    ),
    Mistake(
        "no smoothing",
        "jax",
        (
            (
                "labels = optax.smooth_labels(jax.nn.one_hot(y, 5), 0.1)",
                "labels = jax.nn.one_hot(y, 5)",
            ),
        ),
        ("loss",),
        (r"smooth", r"0\.1|0\.0|=0\b|without|no "),
        False,
    ),
    Mistake(
        "kernel copied with width and height swapped",
        "jax",
        (
            (
                "    _conv(net.conv_b, reference.conv2)\n",
                "    _conv(net.conv_b, reference.conv2)\n"
                "    net.conv_b.kernel.set_value(jnp.asarray(reference.conv2.weight.detach().numpy().T))\n",
            ),
        ),
        ("conv2", "conv2.weight"),
        (r"transpos|swap|axes|permut|height",),
        True,
    ),
    Mistake(
        "bias of the last layer forgotten",
        "jax",
        (
            (
                "    _linear(net.out, reference.fc2)\n",
                "    net.out.kernel.set_value(jnp.asarray(reference.fc2.weight.detach().numpy().T))\n",
            ),
        ),
        ("fc2", "fc2.bias"),
        (r"bias|zero|not (copied|loaded)|start",),
        True,
    ),
    Mistake(
        "no decay",
        "jax",
        (("optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05))", "optax.sgd(0.05)"),),
        ("optimizer sgd",),
        (r"decay", r"0\.01|without|no |=0\b"),
        False,
    ),
    Mistake(
        "mean for maximum",
        "jax",
        (("nnx.max_pool(x, window_shape=(2, 2)", "nnx.avg_pool(x, window_shape=(2, 2)"),),
        ("", "conv2"),
        (r"avg|average|mean",),
        True,
    ),
    Mistake(
        "default epsilon",
        "chainer",
        (("L.BatchNormalization(8, eps=1e-5)", "L.BatchNormalization(8)"),),
        ("bn2",),
        (r"eps", r"2e-0?5"),
        True,
    ),
    Mistake(
        "incomplete windows kept",
        "chainer",
        ((", cover_all=False", ""),),
        ("", "conv2"),
        (r"cover_all|ceil|incomplete|partial|kept",),
        None,
    ),
    Mistake(
        "default slope",
        "chainer",
        ((", slope=0.1", ""),),
        ("", "fc1"),
        (r"leaky|slope", r"0\.2|0\.1"),
        True,
    ),
    Mistake(
        "activation of the hidden layer missing",
        "chainer",
        (("F.relu(self.l1(h))", "self.l1(h)"),),
        ("", "fc2"),
        (r"relu|activation",),
        True,
    ),
    Mistake(
        "decay of the running statistics",
        "chainer",
        (("L.BatchNormalization(6, eps=1e-5)", "L.BatchNormalization(6, decay=0.1, eps=1e-5)"),),
        ("bn1",),
        (r"momentum|decay", r"0\.9|0\.1|swap"),
        False,
    ),
    Mistake(
        "share of the smoothing",
        "chainer",
        (("0.9 * nll + 0.1 * uniform", "0.8 * nll + 0.2 * uniform"),),
        ("loss",),
        (r"smooth", r"0\.2|0\.1"),
        False,
    ),
    Mistake(
        "sum over the samples",
        "chainer",
        (("F.mean(0.9 * nll + 0.1 * uniform)", "F.sum(0.9 * nll + 0.1 * uniform)"),),
        ("loss",),
        (r"sum|reduction|times 5|factor",),
        False,
    ),
    Mistake(
        "decay doubled",
        "chainer",
        (("WeightDecay(0.01)", "WeightDecay(0.02)"),),
        ("optimizer sgd",),
        (r"decay", r"0\.02|0\.01"),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "flattened channels last, with the columns of the weight in that order",
        "jax",
        (
            ("        x = jnp.transpose(x, (0, 3, 1, 2))  # torch flattens channels first\n", ""),
            (
                "    _linear(net.hidden, reference.fc1)\n",
                "    _linear(net.hidden, reference.fc1)\n"
                "    w = reference.fc1.weight.detach().numpy().reshape(20, 8, 3, 2)\n"
                "    net.hidden.kernel.set_value(jnp.asarray(w.transpose(2, 3, 1, 0).reshape(48, 20)))\n",
            ),
        ),
    ),
    Right(
        "takes channels first and turns them itself",
        "jax",
        (
            (
                "        x = nnx.relu(self.norm_a(self.conv_a(x)))\n",
                "        x = jnp.moveaxis(x, 1, -1)\n        x = nnx.relu(self.norm_a(self.conv_a(x)))\n",
            ),
        ),
    ),
    Right(
        "pooling and activation by other functions",
        "jax",
        (
            (
                "x = nnx.max_pool(x, window_shape=(2, 2), strides=(2, 2))",
                'x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")',
            ),
            (
                "x = jax.nn.leaky_relu(self.norm_b(self.conv_b(x)), 0.1)",
                "x = self.norm_b(self.conv_b(x))\n        x = jnp.where(x >= 0, x, 0.1 * x)",
            ),
        ),
    ),
    Right(
        "the linear layers called functionally",
        "jax",
        (
            (
                "x = nnx.relu(self.hidden(x))",
                'x = jnp.maximum(jnp.einsum("bi,io->bo", x, self.hidden.kernel[...]) + self.hidden.bias[...], 0)',
            ),
            ("return self.out(x)", "return x @ self.out.kernel[...] + self.out.bias[...]"),
        ),
    ),
    Right(
        "layers set up in the other order, and a counter that nothing reads",
        "jax",
        (
            (
                '        self.conv_a = nnx.Conv(3, 6, (3, 3), padding="SAME", rngs=rngs)\n',
                "        self.seen = nnx.Variable(jnp.zeros((), jnp.int32))\n"
                "        self.out = nnx.Linear(20, num_classes, rngs=rngs)\n"
                "        self.hidden = nnx.Linear(8 * 3 * 2, 20, rngs=rngs)\n"
                "        self.norm_b = BatchNorm(8, rngs)\n"
                "        self.conv_a = nnx.Conv(3, 6, (3, 3), padding=1, rngs=rngs)\n",
            ),
            (
                "        self.norm_b = BatchNorm(8, rngs)\n"
                "        self.hidden = nnx.Linear(8 * 3 * 2, 20, rngs=rngs)\n"
                "        self.out = nnx.Linear(20, num_classes, rngs=rngs)\n",
                "",
            ),
        ),
    ),
    Right(
        "loss from the log-probabilities",
        "jax",
        (
            (
                "    labels = optax.smooth_labels(jax.nn.one_hot(y, 5), 0.1)\n"
                "    return optax.softmax_cross_entropy(network(x), labels).mean()",
                "    logp = jax.nn.log_softmax(network(x), axis=-1)\n"
                "    nll = -jnp.take_along_axis(logp, y[:, None], axis=-1)[:, 0]\n"
                "    return jnp.mean(0.9 * nll - 0.1 * logp.mean(-1))",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "links set up in the other order",
        "chainer",
        (
            (
                "            self.conv1 = L.Convolution2D(3, 6, ksize=3, pad=1)\n"
                "            self.conv2 = L.Convolution2D(6, 8, ksize=3, stride=2, pad=1)\n",
                "",
            ),
            (
                "            self.l1 = L.Linear(48, 20)\n            self.l2 = L.Linear(20, n_out)\n",
                "            self.l2 = L.Linear(20, n_out)\n            self.l1 = L.Linear(48, 20)\n"
                "            self.conv2 = L.Convolution2D(6, 8, ksize=3, stride=2, pad=1)\n"
                "            self.conv1 = L.Convolution2D(3, 6, ksize=3, pad=1)\n",
            ),
        ),
    ),
    Right(
        "one linear link called functionally",
        "chainer",
        (
            (
                "h = F.relu(self.l1(h))",
                "h = F.relu(F.linear(F.reshape(h, (len(h), -1)), self.l1.W, self.l1.b))",
            ),
        ),
    ),
    Right(
        "sizes found at the first call",
        "chainer",
        (("L.Linear(48, 20)", "L.Linear(None, 20)"),),
    ),
    Right(
        "the stages as sequences",
        "chainer",
        (
            (
                "            self.conv1 = L.Convolution2D(3, 6, ksize=3, pad=1)\n"
                "            self.conv2 = L.Convolution2D(6, 8, ksize=3, stride=2, pad=1)\n"
                "            self.norm1 = L.BatchNormalization(6, eps=1e-5)\n"
                "            self.norm2 = L.BatchNormalization(8, eps=1e-5)\n",
                "            self.stem = chainer.Sequential(\n"
                "                L.Convolution2D(3, 6, ksize=3, pad=1), L.BatchNormalization(6, eps=1e-5), F.relu)\n"
                "            self.body = chainer.Sequential(\n"
                "                L.Convolution2D(6, 8, 3, 2, 1), L.BatchNormalization(8, eps=1e-5))\n",
            ),
            ("h = F.relu(self.norm1(self.conv1(x)))", "h = self.stem(x)"),
            (
                "F.leaky_relu(self.norm2(self.conv2(h)), slope=0.1)",
                "F.leaky_relu(self.body(h), slope=0.1)",
            ),
        ),
    ),
    Right(
        "pooling that rounds down because the last rows are cut off",
        "chainer",
        (
            (
                "h = F.max_pooling_2d(h, 2, cover_all=False)",
                "h = F.max_pooling_2d(h[:, :, :10, :8], 2)",
            ),
        ),
    ),
)
