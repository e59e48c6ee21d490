"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

STAGES = ("inc", "down1", "down2", "conv1", "conv2")
INNER = tuple(f"{stage}.double_conv" for stage in STAGES)
FIRST_NORMS, SECOND_NORMS = (tuple(f"{one}.{i}" for one in INNER) for i in (1, 4))
SEQUENCE = (*INNER, *STAGES)

MISTAKES = (
    Mistake(
        "kernel of the transposed convolution not turned around",
        "jax",
        ((".transpose(2, 3, 0, 1)[::-1, ::-1])", ".transpose(2, 3, 0, 1))"),),
        ("up1", "up1.weight"),
        (r"flip|turned|revers|mirror|rotat",),
        True,
    ),
    Mistake(
        "skip joined last",
        "jax",
        (("jnp.concatenate([skip2, y], axis=-1)", "jnp.concatenate([y, skip2], axis=-1)"),),
        ("", "conv1"),
        (r"order|concat|join",),
        True,
    ),
    Mistake(
        "nearest for bilinear",
        "jax",
        (('method="bilinear"', 'method="nearest"'),),
        ("", "reduce"),
        (r"nearest",),
        True,
    ),
    Mistake(
        "epsilon of flax",
        "jax",
        (
            (
                "self.n2 = nnx.GroupNorm(cout, num_groups=2, epsilon=1e-5, rngs=rngs)",
                "self.n2 = nnx.GroupNorm(cout, num_groups=2, rngs=rngs)",
            ),
        ),
        SECOND_NORMS,
        (r"eps", r"1e-0?6|0\.000001"),
        True,
    ),
    Mistake(
        "one group",
        "jax",
        (
            (
                "self.n1 = nnx.GroupNorm(cout, num_groups=2,",
                "self.n1 = nnx.GroupNorm(cout, num_groups=1,",
            ),
        ),
        FIRST_NORMS,
        (r"group", r"\b1\b|one"),
        True,
    ),
    Mistake(
        "another activation at the end of the blocks",
        "jax",
        (("return nnx.relu(self.n2(self.c2(x)))", "return nnx.gelu(self.n2(self.c2(x)))"),),
        (*SEQUENCE, *(f"{one}.5" for one in INNER)),
        (r"gelu",),
        True,
    ),
    Mistake(
        "bias of a convolution forgotten",
        "jax",
        (('        _set(block.c2.bias, sd[f"{key}.3.bias"])\n', ""),),
        (*(f"{one}.3" for one in INNER), *(f"{one}.3.bias" for one in INNER)),
        (r"bias|zero|not (copied|loaded)|start",),
        True,
    ),
    Mistake(
        "resized with matching corners",
        "jax",
        (
            (
                '    return jax.image.resize(x, (n, 2 * h, 2 * w, c), method="bilinear")\n',
                "    rows, columns = jnp.linspace(0, h - 1, 2 * h), jnp.linspace(0, w - 1, 2 * w)\n"
                "    i, j = jnp.clip(rows.astype(int), 0, h - 2), jnp.clip(columns.astype(int), 0, w - 2)\n"
                "    a, b = (rows - i)[:, None, None], (columns - j)[:, None]\n"
                "    x = x[:, i] * (1 - a) + x[:, i + 1] * a\n"
                "    return x[:, :, j] * (1 - b) + x[:, :, j + 1] * b\n",
            ),
        ),
        ("", "reduce"),
        (r"align_corners|corner",),
        True,
    ),
    Mistake(
        "mean pooling",
        "jax",
        (("nnx.max_pool(x, (2, 2)", "nnx.avg_pool(x, (2, 2)"),),
        ("", "down1", "down2"),
        (r"avg|average|mean",),
        True,
    ),
    Mistake(
        "softmax in the network",
        "jax",
        (("return self.head(y)", "return nnx.softmax(self.head(y))"),),
        ("", "outc"),
        (r"softmax",),
        True,
    ),
    Mistake(
        "corners match by default",
        "chainer",
        ((", align_corners=False", ""),),
        ("", "reduce"),
        (r"align_corners|corner",),
        True,
    ),
    Mistake(
        "skip joined last",
        "chainer",
        (("F.concat((e0, self.conv(d1)), axis=1)", "F.concat((self.conv(d1), e0), axis=1)"),),
        ("", "conv2"),
        (r"order|concat|join",),
        True,
    ),
    Mistake(
        "skip taken before the activation",
        "chainer",
        (
            ("        return F.relu(norm2(conv2(h)))\n", "        return norm2(conv2(h))\n"),
            ("F.max_pooling_2d(e0, 2, 2)", "F.relu(F.max_pooling_2d(e0, 2, 2))"),
            ("F.max_pooling_2d(e1, 2, 2)", "F.relu(F.max_pooling_2d(e1, 2, 2))"),
            ("self.up(e2)", "self.up(F.relu(e2))"),
            ("F.resize_images(d1,", "F.resize_images(F.relu(d1),"),
            ("self.classify(d0)", "self.classify(F.relu(d0))"),
        ),
        ("", "conv1", "conv2", "inc", "down1", *INNER[:2], *(f"{one}.5" for one in INNER[:2])),
        (r"relu|activation",),
        True,
    ),
    Mistake(
        "activation missing between the convolutions",
        "chainer",
        (("h = F.relu(norm1(conv1(x)))", "h = norm1(conv1(x))"),),
        (*SEQUENCE, *(f"{one}.2" for one in INNER)),
        (r"relu|activation",),
        True,
    ),
    Mistake(
        "nearest for bilinear",
        "chainer",
        (('mode="bilinear", align_corners=False', 'mode="nearest"'),),
        ("", "reduce"),
        (r"nearest",),
        True,
    ),
    Mistake(
        "epsilon of a norm",
        "chainer",
        (
            (
                "            L.GroupNormalization(2, n_out, eps=1e-5),\n            L.Convolution2D(n_out",
                "            L.GroupNormalization(2, n_out, eps=1e-3),\n            L.Convolution2D(n_out",
            ),
        ),
        FIRST_NORMS,
        (r"eps", r"0\.001|1e-0?3"),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "channels first at the door",
        "jax",
        (
            (
                "        skip1 = self.enc1(x)\n",
                "        skip1 = self.enc1(x.transpose(0, 2, 3, 1))\n",
            ),
            (
                "        return self.head(y)\n",
                "        return self.head(y).transpose(0, 3, 1, 2)\n",
            ),
        ),
    ),
    Right(
        "kernel turned around by the layer",
        "jax",
        (
            ('padding="VALID", rngs=rngs)', 'padding="VALID", transpose_kernel=True, rngs=rngs)'),
            (".transpose(2, 3, 0, 1)[::-1, ::-1])", ".transpose(2, 3, 1, 0))"),
        ),
    ),
    Right(
        "norm written out",
        "jax",
        (
            (
                "class ConvBlock(nnx.Module):\n",
                "def group_norm(layer, x):\n"
                "    n, h, w, c = x.shape\n"
                "    y = x.reshape(n, h * w, 2, c // 2)\n"
                "    y = y - y.mean((1, 3), keepdims=True)\n"
                "    y = y / jnp.sqrt(jnp.square(y).mean((1, 3), keepdims=True) + 1e-5)\n"
                "    return y.reshape(x.shape) * layer.scale[...] + layer.bias[...]\n\n\n"
                "class ConvBlock(nnx.Module):\n",
            ),
            ("x = nnx.relu(self.n1(self.c1(x)))", "x = nnx.relu(group_norm(self.n1, self.c1(x)))"),
        ),
    ),
    Right(
        "squeezed before it is resized",
        "jax",
        (("y = self.squeeze(upsample(y))", "y = upsample(self.squeeze(y))"),),
    ),
    Right(
        "pooling by a reshape",
        "jax",
        (
            (
                "    return nnx.max_pool(x, (2, 2), strides=(2, 2))\n",
                "    n, h, w, c = x.shape\n    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))\n",
            ),
        ),
    ),
    Right(
        "the first convolution of a join in two parts",
        "jax",
        (
            (
                "        y = self.dec1(jnp.concatenate([skip1, y], axis=-1))\n",
                "        z = jax.lax.full((*y.shape[:3], 8), 0.0, y.dtype)\n"
                "        y = self.dec1(z.at[..., :4].set(skip1).at[..., 4:].set(y))\n",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "links in the order of the way back",
        "chainer",
        (
            ("            self.enc0 = Double(2, 4)\n            self.enc1 = Double(4, 6)\n", ""),
            (
                "            self.classify = L.Convolution2D(4, 3, 1)\n",
                "            self.classify = L.Convolution2D(4, 3, 1)\n"
                "            self.enc1 = Double(4, 6)\n"
                "            self.enc0 = Double(2, 4)\n",
            ),
        ),
    ),
    Right(
        "norm called functionally",
        "chainer",
        (
            (
                "h = F.relu(norm1(conv1(x)))",
                "h = F.relu(F.group_normalization(conv1(x), 2, norm1.gamma, norm1.beta, eps=1e-5))",
            ),
        ),
    ),
    Right(
        "joined by hstack",
        "chainer",
        (("F.concat((e0, self.conv(d1)), axis=1)", "F.hstack([e0, self.conv(d1)])"),),
    ),
    Right(
        "one by one convolution by a product",
        "chainer",
        (
            (
                "return self.classify(d0)",
                "w, b = self.classify.W[:, :, 0, 0], self.classify.b\n"
                "        return F.moveaxis(F.tensordot(d0, w, axes=([1], [1])) + F.broadcast_to(b, (len(x), *x.shape[2:], 3)), 3, 1)",
            ),
        ),
    ),
)
