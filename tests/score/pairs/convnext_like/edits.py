"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

STAGES = ("stage1", "stage2")
ACTS = (*(f"{one}.act" for one in STAGES), *STAGES)
INNER = tuple(f"{one}.norm" for one in STAGES)
ALL_NORMS = ("stem.1", "downsample.0", *INNER, "norm")
SHORT = ("stem.1", "downsample.0", *INNER)

MISTAKES = (
    Mistake(
        "tanh in GELU",
        "jax",
        (("gelu(y, approximate=False)", "gelu(y)"),),
        ACTS,
        (r"tanh",),
        True,
    ),
    Mistake(
        "epsilon of torch's default",
        "jax",
        (("epsilon=1e-6", "epsilon=1e-5"),),
        ALL_NORMS,
        (r"eps", r"1e-0?5|0\.00001"),
        True,
    ),
    Mistake(
        "layer scale left out",
        "jax",
        (("return x + self.layer_scale[...] * y", "return x + y"),),
        (*STAGES, *(f"{one}.gamma" for one in STAGES)),
        (r"gamma|scale",),
        True,
    ),
    Mistake(
        "layer scale of the sum",
        "jax",
        (("return x + self.layer_scale[...] * y", "return self.layer_scale[...] * (x + y)"),),
        (*STAGES, *(f"{one}.gamma" for one in STAGES)),
        (r"gamma|scale",),
        True,
    ),
    Mistake(
        "norm behind the pooling left out",
        "jax",
        (("return self.head(self.head_ln(x))", "return self.head(x)"),),
        ("", "norm", "head"),
        (r"norm|left out|does nothing|unchanged",),
        True,
    ),
    Mistake(
        "norm in front of the pooling",
        "jax",
        (
            (
                "        x = jnp.mean(x, axis=(1, 2))\n        return self.head(self.head_ln(x))\n",
                "        x = jnp.mean(self.head_ln(x), axis=(1, 2))\n        return self.head(x)\n",
            ),
        ),
        ("", "norm", "head"),
        (r"norm|before|order|mean|pool",),
        True,
    ),
    Mistake(
        "no activation",
        "jax",
        (("        y = gelu(y, approximate=False)\n", ""),),
        ACTS,
        (r"gelu|activation",),
        True,
    ),
    Mistake(
        "class weights not divided out",
        "jax",
        (("return jnp.sum(weight * nll) / jnp.sum(weight)", "return jnp.mean(weight * nll)"),),
        ("loss",),
        (r"weight|count|mean|denominator|divid",),
        False,
    ),
    Mistake(
        "norm over all but the samples",
        "jax",
        (
            (
                "        y = self.ln(self.depthwise(x))\n",
                "        y = self.depthwise(x)\n"
                "        y = y - y.mean((1, 2, 3), keepdims=True)\n"
                "        y = y / jnp.sqrt(jnp.square(y).mean((1, 2, 3), keepdims=True) + 1e-6)\n"
                "        y = y * self.ln.scale[...] + self.ln.bias[...]\n",
            ),
        ),
        (*INNER, *STAGES),
        (r"axis|axes|all|group|whole|picture|sample",),
        True,
    ),
    Mistake(
        "borders wrapped around",
        "jax",
        (
            (
                "feature_group_count=dim, rngs=rngs)",
                'feature_group_count=dim, padding="CIRCULAR", rngs=rngs)',
            ),
        ),
        tuple(f"{one}.dwconv" for one in STAGES),
        (r"pad|circular|wrap|border",),
        True,
    ),
    Mistake(
        "perceptron without gradient",
        "jax",
        (
            ("import jax.numpy as jnp\n", "import jax\nimport jax.numpy as jnp\n"),
            (
                "        y = self.project(y)\n",
                "        y = jax.lax.stop_gradient(self.project(y))\n",
            ),
        ),
        (*STAGES, *(f"{one}.pwconv2" for one in STAGES)),
        (r"gradient|detach|stop",),
        False,
    ),
    Mistake(
        "epsilon outside the root",
        "chainer",
        (("F.sqrt(var + self.eps)", "(F.sqrt(var) + self.eps)"),),
        SHORT,
        (r"eps", r"root|sqrt|outside|std|standard deviation"),
        True,
    ),
    Mistake(
        "epsilon too large",
        "chainer",
        (("channels, eps=1e-6", "channels, eps=1e-3"),),
        SHORT,
        (r"eps", r"0\.001|1e-0?3"),
        True,
    ),
    Mistake(
        "no shortcut",
        "chainer",
        (("return x + self.scale(y)", "return self.scale(y)"),),
        STAGES,
        (r"shortcut|residual|skip|sum|added|without|missing",),
        True,
    ),
    Mistake(
        "variance about zero",
        "chainer",
        (("F.mean((x - mean) ** 2, axis=1", "F.mean(x ** 2, axis=1"),),
        SHORT,
        (r"mean|variance|second moment|rms|centr|center",),
        True,
    ),
    Mistake(
        "class weights not divided out",
        "chainer",
        (("return F.sum(each) / weight[t].sum()", "return F.sum(each) / len(t)"),),
        ("loss",),
        (r"weight|count|mean|denominator|divid",),
        False,
    ),
    Mistake(
        "no class weights",
        "chainer",
        (
            ("class_weight=weight, ", ""),
            ("F.sum(each) / weight[t].sum()", "F.mean(each)"),
        ),
        ("loss",),
        (r"weight",),
        False,
    ),
    Mistake(
        "ReLU in front of the way down",
        "chainer",
        (("h = self.conv1(self.norm1(h))", "h = self.conv1(self.norm1(F.relu(h)))"),),
        ("", "downsample", "downsample.0"),
        (r"relu",),
        True,
    ),
    Mistake(
        "sum for mean in the head",
        "chainer",
        (("h = F.mean(h, axis=(2, 3))", "h = F.sum(h, axis=(2, 3))"),),
        ("", "norm"),
        (r"sum|times 6|factor|6",),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "layer norm of the block written out",
        "jax",
        (
            (
                "        y = self.ln(self.depthwise(x))\n",
                "        y = self.depthwise(x)\n"
                "        mean, var = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)\n"
                "        y = (y - mean) / jnp.sqrt(var + 1e-6) * self.ln.scale[...] + self.ln.bias[...]\n",
            ),
        ),
    ),
    Right(
        "perceptron by convolutions of one pixel",
        "jax",
        (
            (
                "self.expand = nnx.Linear(dim, 4 * dim, rngs=rngs)",
                "self.expand = nnx.Conv(dim, 4 * dim, (1, 1), rngs=rngs)",
            ),
            (
                "self.project = nnx.Linear(4 * dim, dim, rngs=rngs)",
                "self.project = nnx.Conv(4 * dim, dim, (1, 1), rngs=rngs)",
            ),
        ),
    ),
    Right(
        "layer scale with the picture's axes",
        "jax",
        (("nnx.Param(jnp.full((dim,), 1e-6))", "nnx.Param(jnp.full((1, 1, 1, dim), 1e-6))"),),
    ),
    Right(
        "the norm shared by a helper",
        "jax",
        (
            (
                "        x = self.stem_ln(self.stem(x))\n        x = self.body(x)\n        x = self.down(self.down_ln(x))\n",
                "        for first, second in ((self.stem, self.stem_ln), (self.body, self.down_ln)):\n            x = second(first(x))\n        x = self.down(x)\n",
            ),
        ),
    ),
    Right(
        "outputs with features beside them",
        "jax",
        (
            (
                "return self.head(self.head_ln(x))",
                'return self.head(self.head_ln(x)), {"features": x}',
            ),
            ("log_softmax(network(x))", "log_softmax(network(x)[0])"),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "grouped convolution",
        "chainer",
        (
            (
                "L.DepthwiseConvolution2D(dim, 1, 5, pad=2)",
                "L.Convolution2D(dim, dim, 5, pad=2, groups=dim)",
            ),
        ),
    ),
    Right(
        "norm of Chainer on the pixels",
        "chainer",
        (
            ("self.norm = ChannelNorm(dim)", "self.norm = L.LayerNormalization(dim)"),
            (
                "        y = self.norm(self.conv(x))\n        y = F.reshape(F.transpose(y, (0, 2, 3, 1)), (n * h * w, c))\n",
                "        y = F.reshape(F.transpose(self.conv(x), (0, 2, 3, 1)), (n * h * w, c))\n        y = self.norm(y)\n",
            ),
        ),
    ),
    Right(
        "perceptron by convolutions of one pixel",
        "chainer",
        (
            ("self.fc1 = L.Linear(dim, 4 * dim)", "self.fc1 = L.Convolution2D(dim, 4 * dim, 1)"),
            ("self.fc2 = L.Linear(4 * dim, dim)", "self.fc2 = L.Convolution2D(4 * dim, dim, 1)"),
            ("        n, c, h, w = x.shape\n", ""),
            ("        y = F.reshape(F.transpose(y, (0, 2, 3, 1)), (n * h * w, c))\n", ""),
            ("        y = F.transpose(F.reshape(y, (n, h, w, c)), (0, 3, 1, 2))\n", ""),
        ),
    ),
    Right(
        "layer scale as a parameter",
        "chainer",
        (
            (
                "self.scale = L.Scale(W_shape=(dim,))",
                "self.scale = chainer.Parameter(1e-6, (dim,))",
            ),
            ("return x + self.scale(y)", "return x + F.scale(y, self.scale, axis=1)"),
        ),
    ),
    Right(
        "links of the network in alphabetical order",
        "chainer",
        (
            (
                "            self.conv0 = L.Convolution2D(3, 6, 2, stride=2)\n            self.norm0 = ChannelNorm(6)\n            self.block1 = ConvNeXtBlock(6)\n",
                "            self.block1 = ConvNeXtBlock(6)\n            self.conv0 = L.Convolution2D(3, 6, 2, stride=2)\n",
            ),
            (
                "            self.norm1 = ChannelNorm(6)\n            self.conv1",
                "            self.norm1 = ChannelNorm(6)\n            self.norm0 = ChannelNorm(6)\n            self.conv1",
            ),
        ),
    ),
)
