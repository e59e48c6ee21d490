"""What people do otherwise in these ports, wrongly or rightly."""

# ruff: noqa: E501

from tests.score.case import Mistake, Right

BLOCKS = ("blocks.0", "blocks.1")
ATTENTION = tuple(f"{block}.attn" for block in BLOCKS)
MLP = tuple(f"{block}.mlp" for block in BLOCKS)
NORMS = tuple(f"{block}.norm{i}" for block in BLOCKS for i in (1, 2))

MISTAKES = (
    Mistake(
        "scaled by the whole width",
        "jax",
        (("scale = 1 / math.sqrt(q.shape[-1])", "scale = 1 / math.sqrt(x.shape[-1])"),),
        ATTENTION,
        (r"scale|sqrt|root|divid", r"12|0\.288|0\.577|embedding|whole|model|all heads"),
        True,
    ),
    Mistake(
        "heads as the inner axis",
        "jax",
        (("b n (h d) -> b h n d", "b n (d h) -> b h n d"),),
        ATTENTION,
        (r"head|interleav|order|permut|reshap|layout",),
        True,
    ),
    Mistake(
        "norm after the attention",
        "jax",
        (("x = x + self.attention(self.ln_1(x))", "x = self.ln_1(x + self.attention(x))"),),
        BLOCKS,
        (r"norm",),
        True,
    ),
    Mistake(
        "position added before the token",
        "jax",
        (
            (
                "x = jnp.concatenate([cls, x], axis=1) + self.pos[...]",
                "x = jnp.concatenate([cls, x + self.pos[1:]], axis=1)",
            ),
        ),
        ("", "pos_embed", "pos_drop"),
        (r"pos|token|added",),
        True,
    ),
    Mistake(
        "keys and queries swapped while copying",
        "jax",
        (
            (
                "copy_linear(mine.attention.qkv, theirs.attn.in_proj_weight, theirs.attn.in_proj_bias)",
                "w, b = theirs.attn.in_proj_weight, theirs.attn.in_proj_bias\n"
                "        kqv = np.r_[12:24, 0:12, 24:36]\n"
                "        copy_linear(mine.attention.qkv, w[kqv], b[kqv])",
            ),
        ),
        (
            *ATTENTION,
            *(f"{one}.in_proj_weight" for one in ATTENTION),
            *(f"{one}.in_proj_bias" for one in ATTENTION),
        ),
        (r"swap|exchang|order|permut|quer|key",),
        True,
    ),
    Mistake(
        "projection of the output not transposed",
        "jax",
        (
            (
                "        copy_norm(mine.ln_1, theirs.norm1)\n",
                "        copy_norm(mine.ln_1, theirs.norm1)\n"
                "        mine.attention.proj.kernel.set_value(jnp.asarray(theirs.attn.out_proj.weight.detach().numpy()))\n",
            ),
        ),
        (
            *ATTENTION,
            *(f"{one}.out_proj" for one in ATTENTION),
            *(f"{one}.out_proj.weight" for one in ATTENTION),
        ),
        (r"transpos",),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "three projections",
        "jax",
        (
            (
                "        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)\n",
                "        self.q = nnx.Linear(dim, dim, rngs=rngs)\n"
                "        self.k = nnx.Linear(dim, dim, rngs=rngs)\n"
                "        self.v = nnx.Linear(dim, dim, rngs=rngs)\n",
            ),
            (
                "q, k, v = jnp.split(self.qkv(x), 3, axis=-1)",
                "q, k, v = self.q(x), self.k(x), self.v(x)",
            ),
            (
                "        copy_linear(mine.attention.qkv, theirs.attn.in_proj_weight, theirs.attn.in_proj_bias)\n",
                "        parts = zip(theirs.attn.in_proj_weight.chunk(3), theirs.attn.in_proj_bias.chunk(3))\n"
                "        for name, (w, b) in zip('qkv', parts):\n"
                "            copy_linear(getattr(mine.attention, name), w, b)\n",
            ),
        ),
    ),
    Right(
        "attention by jax.nn",
        "jax",
        (
            (
                '        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=self.num_heads) for t in (q, k, v))\n'
                "        scale = 1 / math.sqrt(q.shape[-1])\n"
                '        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * scale\n'
                "        probs = jax.nn.softmax(scores, axis=-1)\n"
                '        out = jnp.einsum("bhqk,bhkd->bhqd", probs, v)\n'
                '        return self.proj(rearrange(out, "b h n d -> b n (h d)"))\n',
                '        q, k, v = (rearrange(t, "b n (h d) -> h b n d", h=self.num_heads) for t in (q, k, v))\n'
                "        probs = jax.nn.softmax(q / math.sqrt(q.shape[-1]) @ k.swapaxes(-1, -2))\n"
                '        return self.proj(rearrange(probs @ v, "h b n d -> b n (h d)"))\n',
            ),
        ),
    ),
    Right(
        "patches cut out and multiplied",
        "jax",
        (
            (
                'x = rearrange(self.embed(images), "b h w c -> b (h w) c")',
                'x = rearrange(images, "b (h i) (w j) c -> b (h w) (i j c)", i=4, j=4)\n'
                "        x = x @ self.embed.kernel[...].reshape(48, 12) + self.embed.bias[...]",
            ),
        ),
    ),
    Right(
        "only the class token through the last norm",
        "jax",
        (
            (
                "        x = self.final(x)\n        return self.classifier(x[:, 0])\n",
                "        return self.classifier(self.final(x[:, 0]))\n",
            ),
        ),
    ),
    Right(
        "position of the token added to the token",
        "jax",
        (
            (
                "        cls = jnp.tile(self.cls[...], (x.shape[0], 1, 1))\n"
                "        x = jnp.concatenate([cls, x], axis=1) + self.pos[...]\n",
                "        cls = jnp.tile(self.cls[...] + self.pos[0], (x.shape[0], 1, 1))\n"
                "        x = jnp.concatenate([cls, x + self.pos[1:]], axis=1)\n",
            ),
        ),
    ),
    Right(
        "GELU by the error function",
        "jax",
        (
            (
                "h = nnx.gelu(self.wi(h), approximate=False)",
                "h = self.wi(h)\n        h = h * (1 + jax.lax.erf(h / math.sqrt(2))) / 2",
            ),
        ),
    ),
)
