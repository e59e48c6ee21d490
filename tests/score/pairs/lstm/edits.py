"""What people get wrong in such a classifier, and other ways to write it."""

from tests.score.case import Mistake, Right

BETWEEN = ("", "the network", "the input of fc")

MISTAKES = (
    Mistake(
        "gates in another order",
        "jax",
        (("i, f, g, o = jnp.split", "i, g, f, o = jnp.split"),),
        ("lstm",),
        (r"gate", r"order|swap|exchang|i, ?g, ?f, ?o"),
        True,
    ),
    Mistake(
        "forget bias of one",
        "jax",
        (("jax.nn.sigmoid(f) * c", "jax.nn.sigmoid(f + 1.0) * c"),),
        ("lstm",),
        (r"forget", r"\b1(\.0+)?\b|\bone\b"),
        True,
    ),
    Mistake(
        "state not carried",
        "jax",
        (("carry, y = self.cell(carry, x[:, t])", "_, y = self.cell(carry, x[:, t])"),),
        ("lstm",),
        (r"state|carr|each step|last step", r"not carried|initial|reset|alone|zero|carr"),
        True,
    ),
    Mistake(
        "read backwards",
        "jax",
        (("x[:, t]", "x[:, -1 - t]"),),
        ("lstm", "the input of lstm", "", "the network"),
        (r"revers|backward|flip|last to first|order of (the )?(steps|time|words)",),
        True,
    ),
    Mistake(
        "recurrent weights reshaped",
        "jax",
        (
            (
                "array(lstm.weight_hh_l0).T",
                "array(lstm.weight_hh_l0).reshape(9, 36)",
            ),
        ),
        ("lstm.weight_hh_l0", "lstm"),
        (r"reshap|transpos", r"weight_hh|recurrent|hh"),
        True,
    ),
    Mistake(
        "input bias copied twice",
        "jax",
        (
            (
                "hh.bias.set_value(array(lstm.bias_hh_l0))",
                "hh.bias.set_value(array(lstm.bias_ih_l0))",
            ),
        ),
        ("lstm.bias_hh_l0", "lstm", "lstm.bias_ih_l0"),
        (r"bias", r"bias_hh|bias_ih|twice|value|recurrent"),
        True,
    ),
    Mistake(
        "gates copied in the order of Chainer's manual",
        "chainer",
        (("order = (0, 1, 2, 3)", "order = (0, 1, 3, 2)"),),
        ("lstm", "lstm.weight_ih_l0", "lstm.weight_hh_l0"),
        (r"gate", r"order|swap|exchang|i, ?f, ?[og], ?[og]"),
        True,
    ),
    Mistake(
        "cell state for hidden state",
        "chainer",
        (("self.l1(hy[-1])", "self.l1(cy[-1])"),),
        (*BETWEEN, "lstm"),
        (r"cell|\bc\b|second state|cy|c_n",),
        True,
    ),
    Mistake(
        "sentences reversed",
        "chainer",
        (("self.embed(sentence)", "self.embed(sentence[::-1])"),),
        ("the input of embed", "the input of lstm", "lstm", "", "the network"),
        (r"revers|backward|flip|last to first|order of (the )?(steps|time|words)",),
        True,
    ),
    Mistake(
        "recurrent bias left out",
        "chainer",
        (
            (
                'getattr(unit, f"b{number + 4}").array[...] = blocks["bias_hh_l0"][block, :, 0]',
                'getattr(unit, f"b{number + 4}").array[...] = 0',
            ),
        ),
        ("lstm.bias_hh_l0", "lstm"),
        (r"zero|\b0(\.0)?\b|missing|without|left out|no bias",),
        True,
    ),
)

FLAX_RNN = (
    (
        "        self.cell = LSTMCell(dim, hidden, rngs)\n",
        "        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(dim, hidden, rngs=rngs))\n",
    ),
    (
        """        h = jnp.zeros((x.shape[0], self.cell.hidden), x.dtype)
        carry = (h, h)
        for t in range(x.shape[1]):
            carry, y = self.cell(carry, x[:, t])
        return self.logits(jnp.tanh(self.dense(y)))
""",
        """        return self.logits(jnp.tanh(self.dense(self.rnn(x)[:, -1])))
""",
    ),
    (
        """    model.cell.ih.kernel.set_value(array(lstm.weight_ih_l0).T)
    model.cell.ih.bias.set_value(array(lstm.bias_ih_l0))
    model.cell.hh.kernel.set_value(array(lstm.weight_hh_l0).T)
    model.cell.hh.bias.set_value(array(lstm.bias_hh_l0))
""",
        """    cell = model.rnn.cell
    cell.dense_i.kernel.set_value(array(lstm.weight_ih_l0).T)
    cell.dense_h.kernel.set_value(array(lstm.weight_hh_l0).T)
    cell.dense_h.bias.set_value(array(lstm.bias_ih_l0) + array(lstm.bias_hh_l0))
""",
    ),
)
SCAN = (
    (
        """        for t in range(x.shape[1]):
            carry, y = self.cell(carry, x[:, t])
        return self.logits(jnp.tanh(self.dense(y)))
""",
        """        (y, _), _ = jax.lax.scan(self.cell, carry, jnp.swapaxes(x, 0, 1))
        return self.logits(jnp.tanh(self.dense(y)))
""",
    ),
)
ONE_BIAS = (
    (
        "self.hh = nnx.Linear(hidden, 4 * hidden, rngs=rngs)",
        "self.hh = nnx.Linear(hidden, 4 * hidden, use_bias=False, rngs=rngs)",
    ),
    (
        """set_value(array(lstm.bias_ih_l0))
    model.cell.hh.kernel.set_value(array(lstm.weight_hh_l0).T)
    model.cell.hh.bias.set_value(array(lstm.bias_hh_l0))
""",
        """set_value(array(lstm.bias_ih_l0 + lstm.bias_hh_l0))
    model.cell.hh.kernel.set_value(array(lstm.weight_hh_l0).T)
""",
    ),
)
EINSUM = (
    (
        "self.hh = nnx.Linear(hidden, 4 * hidden, rngs=rngs)",
        "self.u = nnx.Param(jnp.zeros((hidden, 4 * hidden)))\n"
        "        self.b = nnx.Param(jnp.zeros(4 * hidden))",
    ),
    ("self.ih(x) + self.hh(h)", 'self.ih(x) + jnp.einsum("nh,hk->nk", h, self.u[...]) + self.b'),
    ("model.cell.hh.kernel.set_value", "model.cell.u.set_value"),
    ("model.cell.hh.bias.set_value", "model.cell.b.set_value"),
)
HEAD_FIRST = (
    (
        """        self.embedding = nnx.Embed(vocab, dim, rngs=rngs)
        self.cell = LSTMCell(dim, hidden, rngs)
        self.dense = nnx.Linear(hidden, 6, rngs=rngs)
        self.logits = nnx.Linear(6, classes, rngs=rngs)
""",
        """        self.logits = nnx.Linear(6, classes, rngs=rngs)
        self.dense = nnx.Linear(hidden, 6, rngs=rngs)
        self.cell = LSTMCell(dim, hidden, rngs)
        self.embedding = nnx.Embed(vocab, dim, rngs=rngs)
""",
    ),
)
STATELESS = (
    (
        "self.encoder = L.NStepLSTM(1, n_units, n_hidden, 0.0)",
        "self.encoder = L.StatelessLSTM(n_units, n_hidden)",
    ),
    (
        """        xs = [self.embed(sentence) for sentence in tokens]
        hy, cy, ys = self.encoder(None, None, xs)
        h = F.tanh(self.l1(hy[-1]))
""",
        """        c = hidden = None
        for words in F.separate(self.embed(tokens), axis=1):
            c, hidden = self.encoder(c, hidden, words)
        h = F.tanh(self.l1(hidden))
""",
    ),
    (
        """    unit = model.encoder[0]
    lstm = reference.lstm
    order = (0, 1, 2, 3)  # i, f, g, o in both
""",
        """    lstm = reference.lstm
    order = (2, 0, 1, 3)  # of each unit: g, i, f, o
""",
    ),
    (
        """    for number, block in enumerate(order):
        getattr(unit, f"w{number}").array[...] = blocks["weight_ih_l0"][block]
        getattr(unit, f"w{number + 4}").array[...] = blocks["weight_hh_l0"][block]
        getattr(unit, f"b{number}").array[...] = blocks["bias_ih_l0"][block, :, 0]
        getattr(unit, f"b{number + 4}").array[...] = blocks["bias_hh_l0"][block, :, 0]
""",
        """    upward, lateral = model.encoder.upward, model.encoder.lateral
    bias = blocks["bias_ih_l0"] + blocks["bias_hh_l0"]
    for number, block in enumerate(order):
        upward.W.array[number::4] = blocks["weight_ih_l0"][block]
        lateral.W.array[number::4] = blocks["weight_hh_l0"][block]
        upward.b.array[number::4] = bias[block, :, 0]
""",
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right("scanned", "jax", SCAN),
    Right("flax's own recurrence", "jax", FLAX_RNN),
    Right("one bias", "jax", ONE_BIAS),
    Right("recurrent product written out", "jax", EINSUM),
    Right("head registered first", "jax", HEAD_FIRST),
    Right(
        "rows taken from the table",
        "jax",
        (("self.embedding(tokens)", "jnp.take(self.embedding.embedding[...], tokens, axis=0)"),),
    ),
    Right(
        "state as c, h",
        "jax",
        (("h, c = carry", "c, h = carry"), ("return (h, c), h", "return (c, h), h")),
    ),
    Right("as it is", "chainer"),
    Right("a loop of StatelessLSTM", "chainer", STATELESS),
    Right(
        "embedded at once",
        "chainer",
        (
            (
                "xs = [self.embed(sentence) for sentence in tokens]",
                "xs = list(F.separate(self.embed(tokens), axis=0))",
            ),
        ),
    ),
    Right(
        "last of the outputs",
        "chainer",
        (("self.l1(hy[-1])", "self.l1(F.stack([y[-1] for y in ys]))"),),
    ),
    Right(
        "head registered first",
        "chainer",
        (
            (
                """            self.l1 = L.Linear(n_hidden, 6)
            self.l2 = L.Linear(6, n_out)
""",
                "",
            ),
            (
                "            self.embed = L.EmbedID(n_vocab, n_units)\n",
                """            self.l2 = L.Linear(6, n_out)
            self.l1 = L.Linear(n_hidden, 6)
            self.embed = L.EmbedID(n_vocab, n_units)
""",
            ),
        ),
    ),
)
