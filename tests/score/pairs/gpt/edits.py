"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

BLOCKS = ("h.0", "h.1")
ATTENTION = tuple(f"{block}.attn" for block in BLOCKS)
MLP = tuple(f"{block}.mlp" for block in BLOCKS)
GELU = (*(f"{one}.gelu" for one in MLP), *MLP, *BLOCKS)

MISTAKES = (
    Mistake(
        "GELU by the error function",
        "jax",
        (
            (
                "jax.nn.gelu(self.up(self.norm_mlp(x)))",
                "jax.nn.gelu(self.up(self.norm_mlp(x)), approximate=False)",
            ),
        ),
        GELU,
        (r"erf|exact|tanh|approximate",),
        True,
    ),
    Mistake(
        "mask off by one",
        "jax",
        (("jnp.tril(jnp.ones((t, t), bool))", "jnp.tril(jnp.ones((t, t), bool), 1)"),),
        ATTENTION,
        (r"mask|causal|diagonal|future",),
        True,
    ),
    Mistake(
        "no mask",
        "jax",
        (("    logits = jnp.where(causal, logits, -jnp.inf)\n", ""),),
        ATTENTION,
        (r"mask|causal|future",),
        True,
    ),
    Mistake(
        "scores masked by zero",
        "jax",
        (("jnp.where(causal, logits, -jnp.inf)", "jnp.where(causal, logits, 0.0)"),),
        ATTENTION,
        (r"mask|causal|zero|0\.0|-inf",),
        True,
    ),
    Mistake(
        "scores not scaled",
        "jax",
        ((" / jnp.sqrt(d)\n", "\n"),),
        ATTENTION,
        (r"scale|sqrt|root|divid",),
        True,
    ),
    Mistake(
        "epsilon of flax in the last norm",
        "jax",
        (
            (
                "self.norm = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)",
                "self.norm = nnx.LayerNorm(dim, rngs=rngs)",
            ),
        ),
        ("ln_f",),
        (r"eps", r"1e-0?6|0\.000001"),
        True,
    ),
    Mistake(
        "heads outside of the three",
        "jax",
        (
            (
                ".reshape(b, t, 3, self.heads, c // self.heads)\n        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]",
                ".reshape(b, t, self.heads, 3, c // self.heads)\n        q, k, v = qkv[:, :, :, 0], qkv[:, :, :, 1], qkv[:, :, :, 2]",
            ),
        ),
        ATTENTION,
        (r"head|interleav|order|permut|reshap|layout|split",),
        True,
    ),
    Mistake(
        "perceptron without its norm",
        "jax",
        (("jax.nn.gelu(self.up(self.norm_mlp(x)))", "jax.nn.gelu(self.up(x))"),),
        (*BLOCKS, *(f"{block}.ln_2" for block in BLOCKS)),
        (r"norm|ln_2",),
        True,
    ),
    Mistake(
        "attention and perceptron side by side",
        "jax",
        (
            (
                "x = x + self.out(attention(q, k, v).reshape(b, t, c))",
                "a = self.out(attention(q, k, v).reshape(b, t, c))",
            ),
            ("return x + self.down(y)", "return x + a + self.down(y)"),
        ),
        BLOCKS,
        (r"parallel|side by side|without|left out|attn|attention|c_proj",),
        True,
    ),
    Mistake(
        "decay at its default",
        "jax",
        ((", weight_decay=0.1)", ")"),),
        ("optimizer adamw",),
        (r"decay", r"1e-0?4|0\.0001|0\.1\b"),
        False,
    ),
    Mistake(
        "second momentum at its default",
        "jax",
        ((" b2=0.95,", ""),),
        ("optimizer adamw",),
        (r"beta|b2", r"0\.999|0\.95"),
        False,
    ),
    Mistake(
        "decay added to the gradient",
        "jax",
        (
            (
                "optax.adamw(1e-3, b1=0.9, b2=0.95, weight_decay=0.1)",
                "optax.chain(optax.add_decayed_weights(0.1), optax.adam(1e-3, b1=0.9, b2=0.95))",
            ),
        ),
        ("optimizer adamw",),
        (r"l2|gradient|coupled",),
        False,
    ),
    Mistake(
        "embedding scaled",
        "jax",
        (("x = self.tok(tokens) + self.pos", "x = self.tok(tokens) * jnp.sqrt(12.0) + self.pos"),),
        ("", "wte"),
        (r"scale|times|sqrt|3\.46|factor",),
        True,
    ),
    Mistake(
        "head without gradient for the embedding",
        "jax",
        (
            (
                "return self.tok.attend(self.norm(x))",
                "return self.norm(x) @ jax.lax.stop_gradient(self.tok.embedding[...]).T",
            ),
        ),
        ("lm_head", "wte", "", "lm_head.weight", "wte.weight"),
        (r"gradient|detach|stop",),
        False,
    ),
    Mistake(
        "GELU by the error function",
        "chainer",
        (
            (
                "return 0.5 * x * (1 + F.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))",
                "return 0.5 * x * (1 + F.erf(x / np.sqrt(2)))",
            ),
        ),
        GELU,
        (r"erf|exact|tanh|approximate",),
        True,
    ),
    Mistake(
        "mask hides the token itself",
        "chainer",
        (("np.triu(np.ones((t, t), bool), 1)", "np.triu(np.ones((t, t), bool), 0)"),),
        ATTENTION,
        (r"mask|causal|diagonal|itself",),
        True,
    ),
    Mistake(
        "epsilon of Chainer in the norms of the attention",
        "chainer",
        (("self.ln1 = L.LayerNormalization(n, eps=1e-5)", "self.ln1 = L.LayerNormalization(n)"),),
        tuple(f"{block}.ln_1" for block in BLOCKS),
        (r"eps", r"1e-0?6|0\.000001"),
        True,
    ),
    Mistake(
        "second projection of the perceptron not copied",
        "chainer",
        ((', "mlp.c_proj": block.proj}', "}"),),
        (
            *(f"{one}.c_proj" for one in MLP),
            *(f"{one}.c_proj.weight" for one in MLP),
            *(f"{one}.c_proj.bias" for one in MLP),
        ),
        (r"not (copied|loaded)|start|seed|weights? differ",),
        True,
    ),
    Mistake(
        "keys and values swapped while copying",
        "chainer",
        (("zip((block.q, block.k, block.v), weights", "zip((block.q, block.v, block.k), weights"),),
        (
            *ATTENTION,
            *(f"{one}.c_attn" for one in ATTENTION),
            *(f"{one}.c_attn.weight" for one in ATTENTION),
        ),
        (r"swap|exchang|order|permut|key|value",),
        True,
    ),
    Mistake(
        "Chainer's own Adam",
        "chainer",
        (
            (
                "        return AdamWRule(self.hyperparam)",
                "        return chainer.optimizers.adam.AdamRule(self.hyperparam)",
            ),
        ),
        ("optimizer adamw",),
        (r"decay|eps",),
        False,
    ),
    Mistake(
        "one position for all",
        "chainer",
        (
            (
                "np.broadcast_to(np.arange(t), (b, t))",
                "np.broadcast_to(np.arange(b)[:, None], (b, t))",
            ),
        ),
        ("", "wpe"),
        (r"pos|index|indices|argument|axis|input of wpe",),
        True,
    ),
    Mistake(
        "last block called twice",
        "chainer",
        (
            (
                "        h = self.block1(h, b, t)\n",
                "        h = self.block1(self.block1(h, b, t), b, t)\n",
            ),
        ),
        ("", "h.1", "h"),
        (r"twice|again|2 (calls|times)|calls",),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "head written as a product",
        "jax",
        (
            (
                "return self.tok.attend(self.norm(x))",
                'return jnp.einsum("btc,vc->btv", self.norm(x), self.tok.embedding[...])',
            ),
        ),
    ),
    Right(
        "mask kept by the block",
        "jax",
        (
            ("def attention(q, k, v):", "def attention(q, k, v, mask):"),
            ("    causal = jnp.tril(jnp.ones((t, t), bool))\n", "    causal = mask[:t, :t]\n"),
            (
                "        self.heads = heads\n",
                "        self.heads = heads\n        self.mask = nnx.Variable(jnp.tril(jnp.ones((8, 8), bool)))\n",
            ),
            ("attention(q, k, v).reshape", "attention(q, k, v, self.mask[...]).reshape"),
        ),
    ),
    Right(
        "mask added as a large negative number",
        "jax",
        (
            (
                "logits = jnp.where(causal, logits, -jnp.inf)",
                "logits = logits + jnp.where(causal, 0.0, -1e30)",
            ),
        ),
    ),
    Right(
        "head of its own with the embedding as its weight",
        "jax",
        (
            (
                "        self.tok = nnx.Embed(vocab, dim, rngs=rngs)\n",
                "        weight = nnx.Param(jax.random.normal(rngs.params(), (vocab, dim)))\n        self.tok = weight\n        self.head = weight\n",
            ),
            ("x = self.tok(tokens) + ", "x = self.tok[...][tokens] + "),
            ("return self.tok.attend(self.norm(x))", "return self.norm(x) @ self.head[...].T"),
        ),
    ),
    Right(
        "positions as a fresh table of zeros",
        "jax",
        (
            (
                "self.pos = nnx.Embed(length, dim, rngs=rngs)",
                "self.pos = nnx.Param(jnp.zeros((length, dim)))",
            ),
            ("self.pos(jnp.arange(tokens.shape[1]))", "self.pos[: tokens.shape[1]]"),
        ),
    ),
    Right(
        "three projections, the values first",
        "jax",
        (
            (
                "        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)\n        self.out = nnx.Linear(dim, dim, rngs=rngs)\n",
                "        self.value = nnx.Linear(dim, dim, rngs=rngs)\n"
                "        self.key = nnx.Linear(dim, dim, rngs=rngs)\n"
                "        self.query = nnx.Linear(dim, dim, rngs=rngs)\n"
                "        self.out = nnx.Linear(dim, dim, rngs=rngs)\n",
            ),
            (
                "        qkv = self.qkv(self.norm_attn(x)).reshape(b, t, 3, self.heads, c // self.heads)\n        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]\n",
                "        y = self.norm_attn(x)\n"
                "        q, k, v = (layer(y).reshape(b, t, self.heads, -1) for layer in (self.query, self.key, self.value))\n",
            ),
        ),
    ),
    Right(
        "AdamW in its parts",
        "jax",
        (
            (
                "optax.adamw(1e-3, b1=0.9, b2=0.95, weight_decay=0.1)",
                "optax.chain(\n    optax.scale_by_adam(b2=0.95), optax.add_decayed_weights(0.1), optax.scale(-1e-3)\n)",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "head by a product",
        "chainer",
        (
            (
                "y = F.linear(self.ln(h), self.embed.W)",
                "y = F.matmul(self.ln(h), self.embed.W, transb=True)",
            ),
        ),
    ),
    Right(
        "one projection for all three",
        "chainer",
        (
            (
                "            self.q = L.Linear(n, n)\n            self.k = L.Linear(n, n)\n            self.v = L.Linear(n, n)\n",
                "            self.qkv = L.Linear(n, 3 * n)\n",
            ),
            (
                "q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))",
                "q, k, v = map(split, F.split_axis(self.qkv(x), 3, axis=1))",
            ),
            (
                '        weights = np.split(state[f"h.{i}.attn.c_attn.weight"], 3)\n'
                '        biases = np.split(state[f"h.{i}.attn.c_attn.bias"], 3)\n'
                "        for link, w, b in zip((block.q, block.k, block.v), weights, biases):\n"
                "            link.W.array[:], link.b.array[:] = w, b\n",
                '        block.qkv.W.array[:] = state[f"h.{i}.attn.c_attn.weight"]\n'
                '        block.qkv.b.array[:] = state[f"h.{i}.attn.c_attn.bias"]\n',
            ),
        ),
    ),
    Right(
        "a list of blocks",
        "chainer",
        (
            (
                "            self.block0 = Block()\n            self.block1 = Block()\n",
                "            self.blocks = chainer.ChainList(Block(), Block())\n",
            ),
            (
                "        h = self.block0(h, b, t)\n        h = self.block1(h, b, t)\n",
                "        for block in self.blocks:\n            h = block(h, b, t)\n",
            ),
            ("enumerate((model.block0, model.block1))", "enumerate(model.blocks)"),
        ),
    ),
    Right(
        "mask made once, as a value that is saved",
        "chainer",
        (
            (
                "        self.heads = heads\n",
                '        self.heads = heads\n        self.add_persistent("future", np.triu(np.ones((8, 8), bool), 1))\n',
            ),
            ("future = np.triu(np.ones((t, t), bool), 1)", "future = self.future[:t, :t]"),
        ),
    ),
    Right(
        "loss by hand",
        "chainer",
        (
            (
                "    return F.softmax_cross_entropy(y.reshape(-1, 11), t.reshape(-1))",
                "    log_p = F.log_softmax(y.reshape(-1, 11))\n    return -F.average(F.select_item(log_p, t.reshape(-1)))",
            ),
        ),
    ),
)
