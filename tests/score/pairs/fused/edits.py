# ruff: noqa: E501
"""What people get wrong when they fuse layers, and other ways to fuse them."""

from tests.score.case import Mistake, Right

NORM = ("bn", "conv", "the input of block", "the input of block.wide", "the input of wide")
PARALLEL = (
    "block",
    "block.narrow",
    "block.wide",
    "the input of attention",
    "the input of attention.query",
    "the input of query",
)
ATTENTION = (
    "attention",
    "attention.query",
    "attention.key",
    "attention.value",
    "the input of attention.proj",
    "the input of proj",
)

MISTAKES = (
    Mistake(
        "folded with an epsilon",
        "jax",
        (('np.sqrt(w["bn.running_var"])', 'np.sqrt(w["bn.running_var"] + 1e-5)'),),
        NORM,
        (r"eps", r"1e-0?5|0\.00001"),
        True,
    ),
    Mistake(
        "divided by the variance",
        "jax",
        (('np.sqrt(w["bn.running_var"])', 'w["bn.running_var"]'),),
        NORM,
        (r"variance|var\b|running_var", r"root|sqrt|deviation|instead|divi"),
        True,
    ),
    Mistake(
        "mean left out",
        "jax",
        (('w["bn.bias"] - w["bn.running_mean"] * scale', 'w["bn.bias"]'),),
        NORM,
        (r"mean", r"no |not |without|missing|left out|zero|\b0(\.0)?\b"),
        True,
    ),
    Mistake(
        "mean not scaled",
        "jax",
        (('w["bn.bias"] - w["bn.running_mean"] * scale', 'w["bn.bias"] - w["bn.running_mean"]'),),
        NORM,
        (r"mean|bias|beta|shift", r"scal|divi|times|mean"),
        True,
    ),
    Mistake(
        "small kernel in the corner of the large one",
        "jax",
        (("((0, 0), (0, 0), (1, 1), (1, 1))", "((0, 0), (0, 0), (0, 2), (0, 2))"),),
        PARALLEL,
        (r"pad|shift|corner|centre|center|offset|position|place|narrow",),
        True,
    ),
    Mistake(
        "bias of one branch",
        "jax",
        (('w["block.wide.bias"] + w["block.narrow.bias"]', 'w["block.wide.bias"]'),),
        (*PARALLEL, "block.narrow.bias", "block.wide.bias"),
        (r"bias", r"narrow|no |not |without|missing|left out|zero"),
        True,
    ),
    Mistake(
        "kernel with height and width exchanged",
        "jax",
        (("both.transpose(2, 3, 1, 0)", "both.transpose(3, 2, 1, 0)"),),
        (*PARALLEL, "block.wide.weight"),
        (r"transpos|height|width|axes|axis|exchang|swap|kernel",),
        True,
    ),
    Mistake(
        "keys before queries",
        "jax",
        (('("query", "key", "value")', '("key", "query", "value")'),),
        ATTENTION,
        (r"quer|key|\bq\b|\bk\b", r"order|swap|exchang|instead"),
        True,
    ),
    Mistake(
        "heads before the three projections",
        "jax",
        (
            (
                "reshape(n, t, 3, self.heads, c // self.heads)",
                "reshape(n, t, self.heads, 3, c // self.heads)",
            ),
            (
                "qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]",
                "qkv[..., 0, :], qkv[..., 1, :], qkv[..., 2, :]",
            ),
        ),
        ATTENTION,
        (r"head|order|layout|reshap|interleav|axes|split",),
        True,
    ),
    Mistake(
        "scores divided by the size of a head",
        "jax",
        (("jnp.sqrt(q.shape[-1]).astype(x.dtype)", "q.shape[-1]"),),
        ATTENTION,
        (r"scal|sqrt|root|√|divi", r"0\.25|\b4(\.0)?\b|0\.5|\b2(\.0)?\b"),
        True,
    ),
    Mistake(
        "largest token instead of the mean",
        "jax",
        (("self.classifier(x.mean(axis=1))", "self.classifier(x.max(axis=1))"),),
        ("the input of head", "", "the network"),
        (r"max", r"mean|average"),
        True,
    ),
    Mistake(
        "folded with an epsilon",
        "chainer",
        (("bn.running_var.sqrt()", "(bn.running_var + 1e-5).sqrt()"),),
        NORM,
        (r"eps", r"1e-0?5|0\.00001"),
        True,
    ),
    Mistake(
        "scale forgotten in the kernel",
        "chainer",
        (
            (
                "conv.weight.detach().numpy() * scale.reshape(-1, 1, 1, 1)",
                "conv.weight.detach().numpy()",
            ),
        ),
        NORM,
        (
            r"scal|weight|gamma|norm|var",
            r"no |not |without|missing|left out|forgot|instead|\b1(\.0)?\b",
        ),
        True,
    ),
    Mistake(
        "small kernel left out",
        "chainer",
        (
            (
                "    net.merged.W.array[:, :, 1, 1] += narrow.weight.detach().numpy()[:, :, 0, 0]\n",
                "",
            ),
        ),
        PARALLEL,
        (r"narrow|branch|part|sum|kernel|missing|left out|without",),
        True,
    ),
    Mistake(
        "values before keys",
        "chainer",
        (
            (
                "(attention.query, attention.key, attention.value)",
                "(attention.query, attention.value, attention.key)",
            ),
        ),
        ATTENTION,
        (r"value|key|\bv\b|\bk\b", r"order|swap|exchang|instead|in the place of"),
        True,
    ),
    Mistake(
        "last token left out of the mean",
        "chainer",
        (
            (
                "h = h + self.attend(h)\n        return self.fc(F.mean(h, axis=1))",
                "h = h + self.attend(h)\n        return self.fc(F.mean(h[:, :-1], axis=1))",
            ),
        ),
        ("the input of head", "", "the network"),
        (r"last|mean|average|slice|token|\b1[12]\b",),
        True,
    ),
)

UNFOLDED = (
    (
        "        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=1, rngs=rngs)\n",
        """        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=1, use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(6, epsilon=0.0, use_running_average=True, rngs=rngs)
""",
    ),
    (
        "nnx.relu(self.conv1(x))",
        "nnx.relu(self.norm1(self.conv1(x), use_running_average=True))",
    ),
    (
        """    scale = w["bn.weight"] / np.sqrt(w["bn.running_var"])
    folded = w["conv.weight"] * scale[:, None, None, None]
    net.conv1.kernel[...] = folded.transpose(2, 3, 1, 0)
    net.conv1.bias[...] = w["bn.bias"] - w["bn.running_mean"] * scale
""",
        """    net.conv1.kernel[...] = w["conv.weight"].transpose(2, 3, 1, 0)
    net.norm1.scale = nnx.BatchStat(jnp.asarray(w["bn.weight"]))  # constants, as in the original
    net.norm1.bias = nnx.BatchStat(jnp.asarray(w["bn.bias"]))
    net.norm1.mean[...] = w["bn.running_mean"]
    net.norm1.var[...] = w["bn.running_var"]
""",
    ),
)
AT_THE_CALL = (
    (
        "        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=1, rngs=rngs)\n",
        """        self.kernel1 = nnx.Param(jnp.zeros((3, 3, 3, 6)))
        self.scale1 = nnx.Variable(jnp.ones(6))
        self.shift1 = nnx.Variable(jnp.zeros(6))
""",
    ),
    (
        "x = nnx.relu(self.conv1(x))",
        """kernel = self.kernel1 * self.scale1
        axes = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes)
        x = nnx.relu(x + self.shift1)""",
    ),
    (
        """    folded = w["conv.weight"] * scale[:, None, None, None]
    net.conv1.kernel[...] = folded.transpose(2, 3, 1, 0)
    net.conv1.bias[...] = w["bn.bias"] - w["bn.running_mean"] * scale
""",
        """    net.kernel1[...] = w["conv.weight"].transpose(2, 3, 1, 0)
    net.scale1[...] = scale
    net.shift1[...] = w["bn.bias"] - w["bn.running_mean"] * scale
""",
    ),
)
BRANCHES = (
    (
        "        self.conv2 = nnx.Conv(6, 8, (3, 3), strides=2, padding=1, rngs=rngs)\n",
        """        self.conv2 = nnx.Conv(6, 8, (3, 3), strides=2, padding=1, rngs=rngs)
        self.conv2b = nnx.Conv(6, 8, (1, 1), strides=2, padding=0, rngs=rngs)
""",
    ),
    ("nnx.relu(self.conv2(x))", "nnx.relu(self.conv2b(x) + self.conv2(x))"),
    (
        """    both = w["block.wide.weight"] + np.pad(
        w["block.narrow.weight"], ((0, 0), (0, 0), (1, 1), (1, 1))
    )
    net.conv2.kernel[...] = both.transpose(2, 3, 1, 0)
    net.conv2.bias[...] = w["block.wide.bias"] + w["block.narrow.bias"]
""",
        """    net.conv2.kernel[...] = w["block.wide.weight"].transpose(2, 3, 1, 0)
    net.conv2b.kernel[...] = w["block.narrow.weight"].transpose(2, 3, 1, 0)
    net.conv2.bias[...] = w["block.wide.bias"]
    net.conv2b.bias[...] = w["block.narrow.bias"]
""",
    ),
)
SEPARATE = (
    (
        "        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)\n",
        "        self.q, self.k, self.v = (nnx.Linear(dim, dim, rngs=rngs) for _ in range(3))\n",
    ),
    (
        """        qkv = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
""",
        """        layers = (self.q, self.k, self.v)
        q, k, v = (layer(x).reshape(n, t, self.heads, -1) for layer in layers)
""",
    ),
    (
        """    net.attn.qkv.kernel[...] = np.concatenate([w[f"{part}.weight"] for part in parts]).T
    net.attn.qkv.bias[...] = np.concatenate([w[f"{part}.bias"] for part in parts])
""",
        """    for part, layer in zip(parts, (net.attn.q, net.attn.k, net.attn.v)):
        layer.kernel[...] = w[f"{part}.weight"].T
        layer.bias[...] = w[f"{part}.bias"]
""",
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right("norm left apart", "jax", UNFOLDED),
    Right("norm folded at the call", "jax", AT_THE_CALL),
    Right("branches left apart", "jax", BRANCHES),
    Right("projections left apart", "jax", SEPARATE),
    Right(
        "attention of jax",
        "jax",
        (
            (
                """        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / jnp.sqrt(q.shape[-1]).astype(x.dtype)
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", weights, v)
""",
                """        scores = jnp.matmul(q.swapaxes(1, 2), jnp.transpose(k, (0, 2, 3, 1)))
        weights = jnp.exp(0.5 * scores - jax.nn.logsumexp(0.5 * scores, axis=-1, keepdims=True))
        mixed = jnp.matmul(weights, v.swapaxes(1, 2)).swapaxes(1, 2)
""",
            ),
        ),
    ),
    Right(
        "all apart",
        "jax",
        (*UNFOLDED, *BRANCHES, *SEPARATE),
    ),
    Right("as it is", "chainer"),
    Right(
        "projections left apart",
        "chainer",
        (
            (
                "            self.qkv = L.Linear(8, 24)\n",
                "            self.q, self.k, self.v = L.Linear(8, 8), L.Linear(8, 8), L.Linear(8, 8)\n",
            ),
            (
                """        heads = self.qkv(x, n_batch_axes=2).reshape(n, t, 3, 2, 4)
        q, k, v = F.separate(F.transpose(heads, (2, 0, 3, 1, 4)), axis=0)
""",
                """        made = [link(x, n_batch_axes=2).reshape(n, t, 2, 4) for link in (self.q, self.k, self.v)]
        q, k, v = [F.transpose(each, (0, 2, 1, 3)) for each in made]
""",
            ),
            (
                """    net.qkv.W.array[...] = np.concatenate([layer.weight.detach().numpy() for layer in layers])
    net.qkv.b.array[...] = np.concatenate([layer.bias.detach().numpy() for layer in layers])
""",
                """    for link, layer in zip((net.q, net.k, net.v), layers):
        link.W.array[...] = layer.weight.detach().numpy()
        link.b.array[...] = layer.bias.detach().numpy()
""",
            ),
        ),
    ),
    Right(
        "scale and bias as links",
        "chainer",
        (
            (
                "self.stem = L.Convolution2D(3, 6, 3, pad=1)",
                "self.stem = L.Convolution2D(3, 6, 3, pad=1, nobias=True)\n            self.scale = L.Scale(axis=1, W_shape=(6,), bias_term=True)",
            ),
            ("F.relu(self.stem(x))", "F.relu(self.scale(self.stem(x)))"),
            (
                "    net.stem.W.array[...], net.stem.b.array[...] = fold(reference.conv, reference.bn)\n",
                """    _, bias = fold(reference.conv, reference.bn)
    net.stem.W.array[...] = reference.conv.weight.detach().numpy()
    net.scale.W.array[...] = (reference.bn.weight / reference.bn.running_var.sqrt()).numpy()
    net.scale.bias.b.array[...] = bias
""",
            ),
        ),
    ),
    Right(
        "branches left apart",
        "chainer",
        (
            (
                "            self.qkv = L.Linear(8, 24)\n",
                "            self.point = L.Convolution2D(6, 8, 1, stride=2)\n            self.qkv = L.Linear(8, 24)\n",
            ),
            ("F.relu(self.merged(h))", "F.relu(self.merged(h) + self.point(h))"),
            (
                "    net.merged.W.array[:, :, 1, 1] += narrow.weight.detach().numpy()[:, :, 0, 0]\n",
                "    net.point.W.array[...] = narrow.weight.detach().numpy()\n    net.point.b.array[...] = narrow.bias.detach().numpy()\n",
            ),
            ("(wide.bias + narrow.bias).detach().numpy()", "wide.bias.detach().numpy()"),
        ),
    ),
    Right(
        "scores by einsum",
        "chainer",
        (("F.matmul(q, k, transb=True) * 0.5", 'F.einsum("nhqd,nhkd->nhqk", q, k) / 2'),),
    ),
)
