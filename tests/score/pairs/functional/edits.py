"""What people do otherwise in these ports, wrongly or rightly. All code is that of the network itself, so most places
are; the names of functions and parameters next to it are as good."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

NETWORK = ("", "the network")
ATTENTION = (*NETWORK, "attend", "softmax", "masked_fill", "einsum", "wq", "wk", "wv")

MISTAKES = (
    Mistake(
        "tanh in GELU",
        "jax",
        ((", approximate=False", ""),),
        (*NETWORK, "gelu", "w_in", "b_in"),
        (r"tanh",),
        True,
    ),
    Mistake(
        "epsilon of the layer norm",
        "jax",
        (("shift, eps=1e-5", "shift, eps=1e-6"),),
        (*NETWORK, "layer_norm", "norm_scale", "norm_shift"),
        (r"eps", r"1e-0?6|0\.000001"),
        True,
    ),
    Mistake(
        "epsilon of the RMS norm",
        "jax",
        (("scale, eps=1e-6", "scale, eps=1e-5"),),
        (*NETWORK, "rms", "rsqrt"),
        (r"eps", r"1e-0?5|0\.00001"),
        True,
    ),
    Mistake(
        "epsilon of the RMS norm outside the root",
        "jax",
        (("jnp.sqrt(ms + eps)", "(jnp.sqrt(ms) + eps)"),),
        (*NETWORK, "rms", "rsqrt"),
        (r"eps", r"root|sqrt|outside"),
        True,
    ),
    Mistake(
        "band one too wide",
        "jax",
        (("window=2", "window=3"),),
        ATTENTION,
        (r"mask|band|window|distance",),
        True,
    ),
    Mistake(
        "scores not scaled",
        "jax",
        ((" * q.shape[-1] ** -0.5", ""),),
        ATTENTION,
        (r"scale|sqrt|root|divid",),
        True,
    ),
    Mistake(
        "scaled by the width of the values",
        "jax",
        (("q.shape[-1] ** -0.5", "v.shape[-1] ** -0.5"),),
        ATTENTION,
        (r"scale|sqrt|root|divid", r"8|0\.35|0\.866|\bv\b|values"),
        True,
    ),
    Mistake(
        "gate and value of the perceptron swapped",
        "jax",
        (
            (
                'jax.nn.silu(y @ p["mlp"]["gate"]) * (y @ p["mlp"]["up"])',
                '(y @ p["mlp"]["gate"]) * jax.nn.silu(y @ p["mlp"]["up"])',
            ),
        ),
        (*NETWORK, "silu", "w_gate", "w_up"),
        (r"silu|swap|exchang|gate|w_up",),
        True,
    ),
    Mistake(
        "GELU for SiLU",
        "jax",
        (("y = jax.nn.silu(", "y = jax.nn.gelu("),),
        (*NETWORK, "silu", "w_gate", "w_up", "w_down"),
        (r"gelu",),
        True,
    ),
    Mistake(
        "filters turned around",
        "jax",
        (
            (
                'jnp.transpose(t["filters"], (2, 1, 0))',
                'jnp.transpose(t["filters"], (2, 1, 0))[::-1]',
            ),
        ),
        (*NETWORK, "filters", "conv1d"),
        (r"flip|turned|revers|mirror",),
        True,
    ),
    Mistake(
        "pooled by SAME",
        "jax",
        (('(1, 3, 1), (1, 2, 1), "VALID")', '(1, 3, 1), (1, 2, 1), "SAME")'),),
        (*NETWORK, "avg_pool1d"),
        (r"pad|same",),
        True,
    ),
    Mistake(
        "pooled before the activation",
        "jax",
        (
            ("    h = jax.nn.elu(h)\n", ""),
            ('"VALID") / 3\n', '"VALID") / 3\n    h = jax.nn.elu(h)\n'),
        ),
        (*NETWORK, "elu", "avg_pool1d"),
        (r"elu|order|before|pool",),
        True,
    ),
    Mistake(
        "prototypes not normalised",
        "jax",
        (('unit(p["prototypes"]).T', 'p["prototypes"].T'),),
        (*NETWORK, "prototypes", "normalize", "linear"),
        (r"normali|norm|unit|length",),
        True,
    ),
    Mistake(
        "second term of the loss not squared",
        "jax",
        (("jnp.mean(z**2)", "jnp.mean(jnp.abs(z))"),),
        ("loss",),
        (r"square|\*\*|pow|abs|logsumexp|term",),
        False,
    ),
    Mistake(
        "momentum of another form",
        "jax",
        ((", nesterov=True)", ")"),),
        ("optimizer momentum",),
        (r"nesterov",),
        False,
    ),
    Mistake(
        "epsilon of Chainer's link in the layer norm",
        "chainer",
        (
            (
                "F.layer_normalization(h, self.norm_scale, self.norm_shift, eps=1e-5)",
                "F.layer_normalization(h, self.norm_scale, self.norm_shift, eps=1e-6)",
            ),
        ),
        (*NETWORK, "layer_norm", "norm_scale", "norm_shift"),
        (r"eps", r"1e-0?6|0\.000001"),
        True,
    ),
    Mistake(
        "softmax over the queries",
        "chainer",
        (("F.softmax(score, axis=2)", "F.softmax(score, axis=1)"),),
        ATTENTION,
        (r"softmax", r"axis|quer|dim"),
        True,
    ),
    Mistake(
        "band one too narrow",
        "chainer",
        (("np.tril(np.ones((t, t)), -3)", "np.tril(np.ones((t, t)), -2)"),),
        ATTENTION,
        (r"mask|band|window|distance",),
        True,
    ),
    Mistake(
        "no sum with what went into the perceptron",
        "chainer",
        (("h = h + self.mlp(rms_norm(h, self.rms))", "h = self.mlp(rms_norm(h, self.rms))"),),
        (*NETWORK, "w_down", "conv1d"),
        (r"shortcut|residual|skip|sum|added|without|missing",),
        True,
    ),
    Mistake(
        "activation of an exponential unit with another slope",
        "chainer",
        (("h = F.elu(h)", "h = F.elu(h, alpha=0.5)"),),
        (*NETWORK, "elu"),
        (r"elu|alpha", r"0\.5"),
        True,
    ),
    Mistake(
        "mean for maximum",
        "chainer",
        (("F.softplus(F.max(h, axis=2))", "F.softplus(F.mean(h, axis=2))"),),
        (*NETWORK, "amax", "softplus"),
        (r"mean|average",),
        True,
    ),
    Mistake(
        "temperature divides",
        "chainer",
        (("return scores * F.broadcast_to", "return scores / F.broadcast_to"),),
        (*NETWORK, "temperature", "linear"),
        (r"divid|temperature|/|invers|scale|times",),
        True,
    ),
    Mistake(
        "ordinary momentum",
        "chainer",
        (("param.data -= lr * (param.grad + momentum * v)", "param.data -= lr * v"),),
        ("optimizer momentum",),
        (r"nesterov",),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "one matrix for queries, keys and values",
        "jax",
        (
            (
                '    q = jnp.dot(x, p["q"])\n    k = jnp.dot(x, p["k"])\n    v = jnp.dot(x, p["v"])\n',
                '    q, k, v = jnp.split(jnp.dot(x, p["qkv"]), (6, 12), axis=-1)\n',
            ),
            (
                '{"q": t["wq"], "k": t["wk"], "v": t["wv"]}',
                '{"qkv": jnp.concatenate([t["wq"], t["wk"], t["wv"]], axis=1)}',
            ),
        ),
    ),
    Right(
        "layer norm by the moments",
        "jax",
        (
            (
                "    x = jax.nn.standardize(x, axis=-1, epsilon=eps)\n    return x * scale + shift\n",
                "    mu = x.mean(-1, keepdims=True)\n"
                "    var = jnp.var(x, axis=-1, keepdims=True)\n"
                "    return scale * (x - mu) * lax.rsqrt(var + eps) + shift\n",
            ),
        ),
    ),
    Right(
        "the convolution as a sum of shifted products",
        "jax",
        (
            (
                "    h = lax.conv_general_dilated(\n"
                '        h, p["filters"], (1,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC")\n'
                "    )\n",
                "    wide = jnp.pad(h, ((0, 0), (1, 1), (0, 0)))\n"
                '    h = sum(wide[:, i : i + 7] @ p["filters"][i] for i in range(3))\n',
            ),
        ),
    ),
    Right(
        "weights of the attention normalised by hand",
        "jax",
        (
            (
                "    weights = jax.nn.softmax(logits, axis=-1)\n",
                "    weights = jnp.exp(logits - lax.stop_gradient(logits.max(-1, keepdims=True)))\n"
                "    weights = weights / weights.sum(-1, keepdims=True)\n",
            ),
        ),
    ),
    Right(
        "each sample by itself",
        "jax",
        (
            (
                "def banded_attention(p, x, window=2):\n",
                "@jax.vmap\ndef take_max(x):\n    return jnp.max(x, axis=0)\n\n\ndef banded_attention(p, x, window=2):\n",
            ),
            ("jax.nn.softplus(h.max(axis=1))", "jnp.logaddexp(take_max(h), 0.0)"),
        ),
    ),
    Right(
        "filters kept as torch has them",
        "jax",
        (
            ('dimension_numbers=("NWC", "WIO", "NWC")', 'dimension_numbers=("NWC", "OIW", "NWC")'),
            ('jnp.transpose(t["filters"], (2, 1, 0))', 't["filters"]'),
        ),
    ),
    Right(
        "parameters in a flat dictionary of other names",
        "jax",
        (
            (
                'h = h + banded_attention(p["attention"], h)',
                'h = h + banded_attention({"q": p["a"], "k": p["b"], "v": p["c"]}, h)',
            ),
            (
                '        "attention": {"q": t["wq"], "k": t["wk"], "v": t["wv"]},\n',
                '        "b": t["wk"],\n        "a": t["wq"],\n        "c": t["wv"],\n',
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "matrices transposed for the linear function",
        "chainer",
        (
            ("    return F.tensordot(x, w, axes=1)", "    return F.linear(x, w, n_batch_axes=2)"),
            (
                "{name: value.numpy() for name, value in reference.state_dict().items()}",
                '{n: v.numpy().T if n[:2] in ("w_", "wq", "wk", "wv") else v.numpy() for n, v in reference.state_dict().items()}',
            ),
        ),
    ),
    Right(
        "sequences as one long matrix",
        "chainer",
        (
            (
                "    return F.tensordot(x, w, axes=1)",
                "    b, t, c = x.shape\n    return F.reshape(F.matmul(F.reshape(x, (b * t, c)), w), (b, t, w.shape[1]))",
            ),
        ),
    ),
    Right(
        "SiLU by Chainer",
        "chainer",
        (
            (
                "gate * F.sigmoid(gate) * up",
                "F.swish(gate, np.ones((), x.dtype).reshape(()) * np.ones(gate.shape[1:], x.dtype)) * up",
            ),
        ),
    ),
    Right(
        "GELU by the error function",
        "chainer",
        (("h = h * F.ndtr(h)", "h = 0.5 * h * (1 + F.erf(h / math.sqrt(2)))"),),
    ),
    Right(
        "unit length by hand",
        "chainer",
        (
            (
                "h = F.normalize(h, eps=0)",
                "h = h / F.broadcast_to(F.sqrt(F.sum(h * h, axis=1, keepdims=True)), h.shape)",
            ),
        ),
    ),
    Right(
        "maximum through pooling",
        "chainer",
        (("F.softplus(F.max(h, axis=2))", "F.softplus(F.max_pooling_1d(h, h.shape[2])[:, :, 0])"),),
    ),
)
