"""What people get wrong with GRUs and padding, and other ways to write them."""

from tests.score.case import Mistake, Right

PADDING_GRADIENT = (r"padding|token 0|row 0|index 0|ignore", r"gradient|embed|row")
JOINED = ("the input of classifier", "", "the network")

MISTAKES = (
    Mistake(
        "reset before the product",
        "jax",
        (
            (
                "n = jnp.tanh(xn + r * hn)",
                "n = jnp.tanh(xn + (r * h) @ w_h[:, -8:] + b_h[-8:])",
            ),
        ),
        ("gru",),
        (r"reset", r"before|state|product"),
        True,
    ),
    Mistake(
        "update gate the other way round",
        "jax",
        (("(1 - z) * n + z * h", "z * n + (1 - z) * h"),),
        ("gru",),
        (r"update|\bz\b", r"1 ?- ?z|swap|other way|invert|complement|exchang"),
        True,
    ),
    Mistake(
        "state after the padding",
        "jax",
        (("h = jnp.where(valid[:, None], new, h)", "h = new"),),
        ("the input of classifier", "gru", "", "the network"),
        (r"padd|last|mask|length", r"step|padd|valid|length|mask"),
        True,
    ),
    Mistake(
        "gates in another order",
        "jax",
        (("hr, hz, hn = ", "hz, hr, hn = "), ("xr, xz, xn = ", "xz, xr, xn = ")),
        ("gru",),
        (r"gate", r"order|swap|exchang|r, ?z|z, ?r"),
        True,
    ),
    Mistake(
        "bias outside the reset",
        "jax",
        (
            ("h @ w_h + b_h, 3", "h @ w_h + b_h * (jnp.arange(24) < 16), 3"),
            ("xn + r * hn", "xn + r * hn + b_h[-8:]"),
        ),
        ("gru",),
        (r"bias|b_h|b_hn", r"reset|outside|\br\b"),
        True,
    ),
    Mistake(
        "padding takes a gradient",
        "jax",
        (("x = self.tokens(tokens) * mask[..., None]", "x = self.tokens(tokens)"),),
        ("embedding.weight", "embedding"),
        PADDING_GRADIENT,
        False,
    ),
    Mistake(
        "mean over padding",
        "jax",
        (
            (
                "mean = x.sum(axis=1) / mask.sum(axis=1, keepdims=True)",
                "mean = x.mean(axis=1)",
            ),
        ),
        JOINED,
        (r"mean|divi|length|count", r"padd|\b7\b|length|all"),
        True,
    ),
    Mistake(
        "joined in the other order",
        "jax",
        (("[final, mean]", "[mean, final]"),),
        JOINED,
        (r"order|swap", r"join|concat|order"),
        True,
    ),
    Mistake(
        "no label smoothing",
        "jax",
        (
            (
                "optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)",
                "jax.nn.one_hot(labels, logits.shape[-1])",
            ),
        ),
        ("loss",),
        (r"smooth", r"0\.1\b|\b0(\.0)?\b|no |without"),
        False,
    ),
    Mistake(
        "smoothing shared by the other classes",
        "jax",
        (
            (
                "optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)",
                "jnp.where(jax.nn.one_hot(labels, 3) > 0, 0.9, 0.05)",
            ),
        ),
        ("loss",),
        (r"smooth", r"0\.15\b|0\.05\b|other classes|k ?- ?1"),
        False,
    ),
    Mistake(
        "state after the padding",
        "chainer",
        (("x[row, :length] for", "x[row] for"),),
        ("the input of classifier", "gru", "", "the network", "the input of gru"),
        (r"padd|last|mask|length", r"step|padd|valid|length|mask"),
        True,
    ),
    Mistake(
        "padding takes a gradient",
        "chainer",
        (("L.EmbedID(13, 6, ignore_label=0)", "L.EmbedID(13, 6)"),),
        ("embedding.weight", "embedding"),
        PADDING_GRADIENT,
        False,
    ),
    Mistake(
        "gates copied in another order",
        "chainer",
        (
            (
                "rows = slice(8 * gate, 8 * gate + 8)",
                "rows = slice(8 * (1, 0, 2)[gate], 8 * (1, 0, 2)[gate] + 8)",
            ),
        ),
        ("gru", "gru.weight_ih_l0", "gru.weight_hh_l0"),
        (r"gate", r"order|swap|exchang|r, ?z|z, ?r"),
        True,
    ),
    Mistake(
        "no label smoothing",
        "chainer",
        (("    return -F.mean(0.9 * likely + 0.1 * smooth)", "    return -F.mean(likely)"),),
        ("loss",),
        (r"smooth", r"0\.1\b|\b0(\.0)?\b|no |without"),
        False,
    ),
    Mistake(
        "loss summed",
        "chainer",
        (("return -F.mean(0.9", "return -F.sum(0.9"),),
        ("loss",),
        (r"sum|times 4|\b4(\.0)?\b|batch", r"sum|mean|4"),
        False,
    ),
    Mistake(
        "tokens past the first padding counted",
        "chainer",
        (("lengths = (tokens != 0).sum(axis=1)", "lengths = (tokens != 0).sum(axis=1) - 1"),),
        ("the input of classifier", "", "the network", "gru", "the input of gru"),
        (r"length|count|last", r"1|one|shorter|before"),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "loop over time",
        "jax",
        (
            (
                "        final, _ = jax.lax.scan(step, start, (projected, mask.T))\n",
                "        final = start\n"
                "        for t in range(x.shape[1]):\n"
                "            final, _ = step(final, (projected[t], mask[:, t]))\n",
            ),
        ),
    ),
    Right(
        "last state picked",
        "jax",
        (
            ("            h = jnp.where(valid[:, None], new, h)\n", ""),
            ("            return h, h\n", "            return new, new\n"),
            ("final, _ = jax.lax.scan", "_, states = jax.lax.scan"),
            (
                "        return final\n",
                "        return states[mask.sum(axis=1) - 1, jnp.arange(len(x))]\n",
            ),
        ),
    ),
    Right(
        "padding row without a gradient",
        "jax",
        (
            (
                "x = self.tokens(tokens) * mask[..., None]",
                "x = self.tokens(tokens)\n"
                "        x = jnp.where(mask[..., None], x, jax.lax.stop_gradient(x))",
            ),
        ),
    ),
    Right(
        "loss of optax",
        "jax",
        (
            (
                "-jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1).mean()",
                "optax.softmax_cross_entropy(logits, targets).mean()",
            ),
        ),
    ),
    Right(
        "two products for the head",
        "jax",
        (
            (
                "return self.fc(jnp.concatenate([final, mean], axis=-1))",
                "kernel = self.fc.kernel[...]\n"
                "        return final @ kernel[:8] + mean @ kernel[8:] + self.fc.bias",
            ),
        ),
    ),
    Right(
        "other names",
        "jax",
        (
            (
                "self.tokens = nnx.Embed(13, 6, rngs=rngs)",
                "self.vocabulary = nnx.Embed(13, 6, rngs=rngs)",
            ),
            ("self.tokens(tokens)", "self.vocabulary(tokens)"),
            ("net.tokens.embedding", "net.vocabulary.embedding"),
            ("self.rnn = GRU(6, 8)", "self.layers = nnx.List([GRU(6, 8)])"),
            ("self.rnn(x, mask)", "self.layers[0](x, mask)"),
            (
                '    net.rnn.w_x[...] = weights["gru.weight_ih_l0"].T\n',
                '    rnn = net.layers[0]\n    rnn.w_x[...] = weights["gru.weight_ih_l0"].T\n',
            ),
            ("net.rnn.w_h", "rnn.w_h"),
            ("net.rnn.b_x", "rnn.b_x"),
            ("net.rnn.b_h", "rnn.b_h"),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "sentences cut before the embedding",
        "chainer",
        (
            (
                "xs = [x[row, :length] for row, length in enumerate(lengths)]",
                "xs = [self.embed(row[:n]) for row, n in zip(tokens, lengths)]",
            ),
        ),
    ),
    Right(
        "cross-entropy of Chainer's own",
        "chainer",
        (
            ("    scores = F.log_softmax(network(tokens))\n", "    logits = network(tokens)\n"),
            ("    likely = F.select_item(scores, labels)\n", ""),
            (
                "    smooth = F.mean(scores, axis=1)\n",
                "    smooth = -F.mean(F.log_softmax(logits))\n",
            ),
            (
                "    return -F.mean(0.9 * likely + 0.1 * smooth)",
                "    return 0.9 * F.softmax_cross_entropy(logits, labels) + 0.1 * smooth",
            ),
        ),
    ),
    Right(
        "state from the outputs",
        "chainer",
        (
            ("hy, _ = self.gru(None, xs)", "_, ys = self.gru(None, xs)"),
            ("F.concat([hy[0], mean], axis=1)", "F.hstack([F.stack([y[-1] for y in ys]), mean])"),
        ),
    ),
    Right(
        "registered backwards",
        "chainer",
        (
            ("            self.embed = L.EmbedID(13, 6, ignore_label=0)\n", ""),
            (
                "            self.fc = L.Linear(14, 3)\n",
                "            self.fc = L.Linear(14, 3)\n"
                "            self.embed = L.EmbedID(13, 6, ignore_label=0)\n",
            ),
        ),
    ),
)
