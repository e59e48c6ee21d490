# ruff: noqa: E501
"""What people get wrong in such language models, and other ways to write them."""

from tests.score.case import Mistake, Right

ATTENTION = (
    "layers.0.attention",
    "the input of layers.0.attention.wo",
    "the input of wo",
    "layers.1.attention",
    "the input of layers.1.attention.wo",
    "the input of wo",
)
FORWARD = (
    "layers.0.feed_forward",
    "the input of layers.0.feed_forward.w2",
    "the input of w2",
    "layers.1.feed_forward",
    "the input of layers.1.feed_forward.w2",
    "the input of w2",
)
NORMS = (
    "layers.0.attention_norm",
    "layers.0.ffn_norm",
    "layers.1.attention_norm",
    "layers.1.ffn_norm",
    "norm",
)
HEAD = ("output", "", "the network", "the output")
ROTARY = r"rotar|rope|position|turn|angle"

MISTAKES = (
    Mistake(
        "epsilon of 1e-6",
        "jax",
        (("def __init__(self, dim, eps=1e-5):", "def __init__(self, dim, eps=1e-6):"),),
        NORMS,
        (r"eps", r"1e-0?6|1e-0?5"),
        True,
    ),
    Mistake(
        "epsilon outside the root",
        "jax",
        (
            (
                "x * jax.lax.rsqrt(variance + self.eps) * self.scale",
                "x / (jnp.sqrt(variance) + self.eps) * self.scale",
            ),
        ),
        NORMS,
        (r"eps", r"outside|root|sqrt"),
        True,
    ),
    Mistake(
        "scale plus one",
        "jax",
        (
            (
                "rsqrt(variance + self.eps) * self.scale",
                "rsqrt(variance + self.eps) * (1 + self.scale)",
            ),
        ),
        NORMS,
        (r"1|one", r"scale|weight|gamma"),
        True,
    ),
    Mistake(
        "neighbours turned instead of halves",
        "jax",
        (
            ("x1, x2 = jnp.split(x, 2, axis=-1)", "x1, x2 = x[..., ::2], x[..., 1::2]"),
            (
                "return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)",
                "return jnp.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).reshape(x.shape)",
            ),
        ),
        ATTENTION,
        (ROTARY, r"pair|interleav|neighbo|half|halves"),
        True,
    ),
    Mistake(
        "base of a thousand",
        "jax",
        (("theta=10000.0", "theta=1000.0"),),
        ATTENTION,
        (rf"{ROTARY}|base|theta", r"\b1e\+?0?3\b|\b1000(\.0)?\b|\b10000(\.0)?\b|\b1e\+?0?4\b"),
        True,
    ),
    Mistake(
        "turned the other way",
        "jax",
        (
            (
                "[x1 * cos - x2 * sin, x2 * cos + x1 * sin]",
                "[x1 * cos + x2 * sin, x2 * cos - x1 * sin]",
            ),
        ),
        ATTENTION,
        (ROTARY, r"sign|other way|direction|negative|backward|opposite"),
        True,
    ),
    Mistake(
        "keys not turned",
        "jax",
        (
            (
                "k = rope(self.k_proj(x).reshape(b, t, N_KV, -1))",
                "k = self.k_proj(x).reshape(b, t, N_KV, -1)",
            ),
        ),
        ATTENTION,
        (ROTARY, r"key|\bk\b|wk"),
        True,
    ),
    Mistake(
        "heads tiled instead of repeated",
        "jax",
        (
            (
                "jnp.repeat(each, N_HEADS // N_KV, axis=2)",
                "jnp.tile(each, (1, 1, N_HEADS // N_KV, 1))",
            ),
        ),
        ATTENTION,
        (r"head|group|key", r"tile|repeat|order|interleav"),
        True,
    ),
    Mistake(
        "scores not scaled",
        "jax",
        (("q, k) * q.shape[-1] ** -0.5", "q, k)"),),
        ATTENTION,
        (r"scal|sqrt|root|√|divi", r"\b2(\.0)?\b|0\.5|\b1(\.0)?\b|no |not |without|head|4"),
        True,
    ),
    Mistake(
        "no causal mask",
        "jax",
        (("scores = jnp.where(causal, scores, -jnp.inf)", "scores = scores + 0 * causal"),),
        ATTENTION,
        (r"mask|causal|future",),
        True,
    ),
    Mistake(
        "gelu for silu",
        "jax",
        (("jax.nn.silu(self.gate(x))", "jax.nn.gelu(self.gate(x))"),),
        FORWARD,
        (r"gelu", r"silu|swish"),
        True,
    ),
    Mistake(
        "gate and up exchanged",
        "jax",
        (("jax.nn.silu(self.gate(x)) * self.up(x)", "jax.nn.silu(self.up(x)) * self.gate(x)"),),
        FORWARD,
        (r"silu|swish|gate|w1", r"w3|w1|exchang|swap|other"),
        True,
    ),
    Mistake(
        "shortcut from the norm",
        "jax",
        (
            (
                "        x = x + self.self_attn(self.input_norm(x))\n",
                "        x = self.input_norm(x)\n        x = x + self.self_attn(x)\n",
            ),
        ),
        (
            "layers.0",
            "the input of layers.0.ffn_norm",
            "the input of ffn_norm",
            "layers.1",
            "the input of layers.1.ffn_norm",
            "the input of ffn_norm",
        ),
        (r"shortcut|residual|sum|\+|add|output of", r"norm"),
        True,
    ),
    Mistake(
        "logits scaled",
        "jax",
        (
            (
                "self.embed.attend(self.final_norm(x))",
                "self.embed.attend(self.final_norm(x)) * DIM**-0.5",
            ),
        ),
        HEAD,
        (r"0\.25\b|\b4(\.0)?\b", r"scal|times|factor|multipl|divi|\*|/"),
        True,
    ),
    Mistake(
        "no last norm",
        "jax",
        (("self.embed.attend(self.final_norm(x))", "self.embed.attend(x)"),),
        ("the input of output", "norm", *HEAD),
        (r"norm", r"no |not |without|missing|left out|instead"),
        True,
    ),
    Mistake(
        "head not tied",
        "jax",
        (
            (
                "        self.final_norm = RMSNorm(DIM)\n",
                "        self.final_norm = RMSNorm(DIM)\n        self.head = nnx.Linear(DIM, 17, use_bias=False, rngs=rngs)\n",
            ),
            ("self.embed.attend(self.final_norm(x))", "self.head(self.final_norm(x))"),
            (
                "    model.embed.embedding.set_value(table)\n",
                "    model.embed.embedding.set_value(table)\n    model.head.kernel.set_value(table.T)\n",
            ),
        ),
        ("tok_embeddings.weight", "output.weight", "tok_embeddings", "output"),
        (r"tie|tied|shar",),
        False,
    ),
    Mistake(
        "epsilon of 1e-6",
        "chainer",
        (("def __init__(self, size, eps=1e-5):", "def __init__(self, size, eps=1e-6):"),),
        NORMS,
        (r"eps", r"1e-0?6|1e-0?5"),
        True,
    ),
    Mistake(
        "frequencies interleaved",
        "chainer",
        (("np.concatenate([frequency, frequency])", "np.repeat(frequency, 2)"),),
        ATTENTION,
        (ROTARY, r"frequenc|interleav|pair|order|half|halves"),
        True,
    ),
    Mistake(
        "relu for silu",
        "chainer",
        (("y = gate * F.sigmoid(gate) *", "y = F.relu(gate) *"),),
        FORWARD,
        (r"relu", r"silu|swish"),
        True,
    ),
    Mistake(
        "scaled by the width",
        "chainer",
        (("transb=True) / self.size**0.5", "transb=True) / width**0.5"),),
        ATTENTION,
        (r"scal|sqrt|root|√|divi", r"\b4(\.0)?\b|0\.25|\b16\b|\b2(\.0)?\b|0\.5|width"),
        True,
    ),
    Mistake(
        "sees the next word",
        "chainer",
        (("dtype=x.dtype), 1)", "dtype=x.dtype), 2)"),),
        ATTENTION,
        (r"mask|causal|future|next",),
        True,
    ),
    Mistake(
        "second block used twice",
        "chainer",
        (
            (
                "        for block in self.blocks:\n            h = block(h)\n",
                "        for _ in self.blocks:\n            h = self.blocks[1](h)\n",
            ),
        ),
        ("layers.0", "the input of layers.1", "the input of 1", "", "the network"),
        (r"layers\.1|twice|same|blocks?\.1|shared|instead of layers\.0|exchang",),
        True,
    ),
    Mistake(
        "heads tiled instead of repeated",
        "chainer",
        (
            (
                "k, v = F.repeat(k, copies, axis=1), F.repeat(v, copies, axis=1)",
                "k, v = F.tile(k, (1, copies, 1, 1)), F.tile(v, (1, copies, 1, 1))",
            ),
        ),
        ATTENTION,
        (r"head|group|key", r"tile|repeat|order|interleav"),
        True,
    ),
)

STACKED = (
    (
        "        self.blocks = nnx.List([DecoderLayer(rngs) for _ in range(2)])\n",
        """        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def stacked(rngs):
            return DecoderLayer(rngs)

        self.blocks = stacked(rngs)
""",
    ),
    (
        """        for block in self.blocks:
            x = block(x)
""",
        """        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def step(x, block):
            return block(x)

        x = step(x, self.blocks)
""",
    ),
    (
        """    for block, weights in zip(model.blocks, layers):
        load_layer(block, weights)
""",
        """    load_layer(model.blocks, jax.tree.map(lambda *w: jnp.stack(w), *layers))
""",
    ),
)
FUSED_QKV = (
    (
        """        self.q_proj = nnx.Linear(DIM, DIM, use_bias=False, rngs=rngs)
        self.k_proj = nnx.Linear(DIM, N_KV * head, use_bias=False, rngs=rngs)
        self.v_proj = nnx.Linear(DIM, N_KV * head, use_bias=False, rngs=rngs)
""",
        """        self.qkv = nnx.Linear(DIM, DIM + 2 * N_KV * head, use_bias=False, rngs=rngs)
""",
    ),
    (
        """        q = rope(self.q_proj(x).reshape(b, t, N_HEADS, -1))
        k = rope(self.k_proj(x).reshape(b, t, N_KV, -1))
        v = self.v_proj(x).reshape(b, t, N_KV, -1)
""",
        """        q, k, v = jnp.split(self.qkv(x), (16, 24), axis=-1)
        q = rope(q.reshape(b, t, N_HEADS, -1))
        k = rope(k.reshape(b, t, N_KV, -1))
        v = v.reshape(b, t, N_KV, -1)
""",
    ),
    (
        """    attention.q_proj.kernel.set_value(turned(weights["attention.wq.weight"]))
    attention.k_proj.kernel.set_value(turned(weights["attention.wk.weight"]))
    attention.v_proj.kernel.set_value(turned(weights["attention.wv.weight"]))
""",
        """    joined = [weights[f"attention.w{each}.weight"] for each in "qkv"]
    attention.qkv.kernel.set_value(turned(jnp.concatenate(joined)))
""",
    ),
)
GROUPED = (
    ("        k, v = (jnp.repeat(each, N_HEADS // N_KV, axis=2) for each in (k, v))\n", ""),
    (
        'jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5',
        'jnp.einsum("bqghd,bkgd->bghqk", q.reshape(b, t, N_KV, 2, -1), k) * 0.5',
    ),
    ('"bhqk,bkhd->bqhd"', '"bghqk,bkgd->bqghd"'),
)
COMPLEX = (
    (
        """    cos, sin = jnp.cos(angles), jnp.sin(angles)
    x1, x2 = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)
""",
        """    x1, x2 = jnp.split(x, 2, axis=-1)
    turned = jax.lax.complex(x1, x2) * jnp.exp(1j * angles)
    return jnp.concatenate([turned.real, turned.imag], axis=-1)
""",
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right("blocks stacked and scanned", "jax", STACKED),
    Right("queries, keys and values in one", "jax", FUSED_QKV),
    Right("grouped without repeating", "jax", GROUPED),
    Right("turned as complex numbers", "jax", COMPLEX),
    Right(
        "head by einsum",
        "jax",
        (
            (
                "return self.embed.attend(self.final_norm(x))",
                'return jnp.einsum("btd,vd->btv", self.final_norm(x), self.embed.embedding[...])',
            ),
        ),
    ),
    Right(
        "large negative mask",
        "jax",
        (
            (
                "scores = jnp.where(causal, scores, -jnp.inf)",
                "scores = jnp.where(causal, scores, -1e30)",
            ),
        ),
    ),
    Right(
        "silu by its formula",
        "jax",
        (
            (
                "return self.down(jax.nn.silu(self.gate(x)) * self.up(x))",
                "gate = self.gate(x)\n        return self.down(gate / (1 + jnp.exp(-gate)) * self.up(x))",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "norm by a function of Chainer's",
        "chainer",
        (
            (
                "scale = F.sqrt(F.mean(x * x, axis=-1, keepdims=True) + self.eps)",
                "scale = F.sqrt(F.average(F.square(x), axis=2, keepdims=True) + self.eps)",
            ),
        ),
    ),
    Right(
        "swish of Chainer's own",
        "chainer",
        (
            (
                "y = gate * F.sigmoid(gate) *",
                "y = F.swish(gate.reshape(-1, 12), np.ones(12, gate.dtype)).reshape(gate.shape) *",
            ),
        ),
    ),
    Right(
        "masked by where",
        "chainer",
        (
            (
                "weight = F.softmax(score + np.broadcast_to(future, score.shape), axis=3)",
                "seen = np.broadcast_to(future == 0, score.shape)\n"
                "        weight = F.softmax(F.where(seen, score, np.full(score.shape, -np.inf, x.dtype)), axis=3)",
            ),
        ),
    ),
    Right(
        "product by einsum",
        "chainer",
        (("F.matmul(q, k, transb=True) /", 'F.einsum("bhqd,bhkd->bhqk", q, k) /'),),
    ),
)
