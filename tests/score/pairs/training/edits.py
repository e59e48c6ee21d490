"""What people get wrong between training scripts, and other ways to write the same steps."""

from tests.score.case import Mistake, Right

CLIP = "optax.chain(clip_norm(1.0), optax.sgd(0.1))"
SUM = (r"sum|times|factor|\d", r"mean|half|sum|0\.5|2")

MISTAKES = (
    Mistake(
        "default decay of adamw",
        "jax",
        (("optax.adamw(1e-3, weight_decay=1e-2)", "optax.adamw(1e-3)"),),
        ("optimizer adamw",),
        (r"decay", r"1e-0?4|0\.0001|1e-0?2|0\.01"),
        False,
    ),
    Mistake(
        "default epsilon of adam",
        "jax",
        (("optax.adam(2e-3, b2=0.98, eps=1e-6)", "optax.adam(2e-3, b2=0.98)"),),
        ("optimizer adam",),
        (r"eps", r"1e-0?8|1e-0?6"),
        False,
    ),
    Mistake(
        "epsilon inside the root",
        "jax",
        (("b2=0.98, eps=1e-6)", "b2=0.98, eps=0.0, eps_root=1e-6)"),),
        ("optimizer adam",),
        (r"eps", r"root|sqrt|inside"),
        False,
    ),
    Mistake(
        "default second beta",
        "jax",
        (("optax.adam(2e-3, b2=0.98, eps=1e-6)", "optax.adam(2e-3, eps=1e-6)"),),
        ("optimizer adam",),
        (r"beta|b2", r"0\.999|0\.98"),
        False,
    ),
    Mistake(
        "clipped by value",
        "jax",
        ((CLIP, "optax.chain(optax.clip(1.0), optax.sgd(0.1))"),),
        ("optimizer clipped",),
        (r"clip", r"value|element|each"),
        False,
    ),
    Mistake(
        "clipped without PyTorch's 1e-6",
        "jax",
        ((CLIP, "optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))"),),
        ("optimizer clipped",),
        (r"clip|norm", r"1e-0?6|0\.000001"),
        False,
    ),
    Mistake(
        "not clipped",
        "jax",
        ((CLIP, "optax.sgd(0.1)"),),
        ("optimizer clipped",),
        (r"clip", r"no |not|without|missing"),
        False,
    ),
    Mistake(
        "nesterov",
        "jax",
        (("momentum=0.9)", "momentum=0.9, nesterov=True)"),),
        ("optimizer momentum",),
        (r"nesterov",),
        False,
    ),
    Mistake(
        "momentum as an average",
        "jax",
        (
            (
                "optax.add_decayed_weights(1e-3), optax.sgd(0.02, momentum=0.9)",
                "optax.add_decayed_weights(1e-3), optax.ema(0.9, debias=False), optax.sgd(0.02)",
            ),
        ),
        ("optimizer momentum",),
        (r"momentum|dampening|average|velocity", r"0\.9|0\.1|dampening|1 ?- "),
        False,
    ),
    Mistake(
        "decay after the step is scaled",
        "jax",
        (
            (
                "optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.05))",
                "optax.chain(optax.sgd(0.05), optax.add_decayed_weights(-1e-3))",
            ),
        ),
        ("optimizer sgd",),
        (r"decay", r"rate|lr|decoupled|0\.02|2e-0?2|1e-0?3|0\.001"),
        False,
    ),
    Mistake(
        "biases decay too",
        "jax",
        (("weight_decay=0.05, mask=is_matrix", "weight_decay=0.05"),),
        ("optimizer decayed",),
        (r"decay", r"bias|vector|norm|all|mask|one axis|0\.05"),
        False,
    ),
    Mistake(
        "cosine over one step fewer",
        "jax",
        (("optax.cosine_decay_schedule(0.1, 20)", "optax.cosine_decay_schedule(0.1, 19)"),),
        ("optimizer cosine",),
        (r"cosine|schedule|learning rate", r"\b19\b|\b20\b"),
        False,
    ),
    Mistake(
        "warm-up that starts at zero",
        "jax",
        (("(count + 1.0) / 5", "(count + 0.0) / 5"),),
        ("optimizer warmup",),
        (r"warm|schedule|learning rate", r"one step|1 step|late|off by|shift|delay|\b0(\.0)?\b"),
        False,
    ),
    Mistake(
        "loss summed",
        "jax",
        (
            (
                "0.5 * jnp.mean(jnp.sum(jnp.square(error), axis=-1))",
                "0.5 * jnp.sum(jnp.square(error))",
            ),
        ),
        ("loss",),
        (r"sum|\b6(\.0)?\b", r"mean|6"),
        False,
    ),
    Mistake(
        "mean over targets as well",
        "jax",
        (("jnp.mean(jnp.sum(jnp.square(error), axis=-1))", "jnp.mean(jnp.square(error))"),),
        ("loss",),
        (r"mean|\b2(\.0)?\b|0\.5", r"sum|2|0\.5|all|target|axis"),
        False,
    ),
    Mistake(
        "approximate gelu",
        "jax",
        (("self.ln(self.dense1(x)), approximate=False)", "self.ln(self.dense1(x)))"),),
        ("the input of fc2", "act", "", "the network"),
        (r"gelu", r"tanh|approx"),
        True,
    ),
    Mistake(
        "default epsilon of flax's norm",
        "jax",
        (("nnx.LayerNorm(12, epsilon=1e-5, rngs=rngs)", "nnx.LayerNorm(12, rngs=rngs)"),),
        ("norm",),
        (r"eps", r"1e-0?6|1e-0?5"),
        True,
    ),
    Mistake(
        "Chainer's own Adam",
        "chainer",
        (("made(Adam(alpha=2e-3", "made(optimizers.Adam(alpha=2e-3"),),
        ("optimizer adam",),
        (r"eps", r"correct|unscaled|scaled|bias|before"),
        False,
    ),
    Mistake(
        "decay not times the learning rate",
        "chainer",
        (
            (
                "param.array *= 1 - hp.alpha * hp.weight_decay_rate",
                "param.array *= 1 - hp.weight_decay_rate",
            ),
        ),
        ("optimizer adamw",),
        (r"decay", r"rate|lr|\b10(\.0)?\b|0\.01|1e-0?2"),
        False,
    ),
    Mistake(
        "no correction of the second moment",
        "chainer",
        (("np.sqrt(v / (1 - hp.beta2**self.t)) + hp.eps", "np.sqrt(v) + hp.eps"),),
        ("optimizer adam", "optimizer adamw"),
        (r"correct", r"second|v|beta2|b2|bias"),
        False,
    ),
    Mistake(
        "decay left out",
        "chainer",
        (
            (
                "made(optimizers.SGD(lr=0.05), net, decay(1e-3))",
                "made(optimizers.SGD(lr=0.05), net)",
            ),
        ),
        ("optimizer sgd",),
        (r"decay", r"no |without|missing|\b0(\.0)?\b|1e-0?3|0\.001"),
        False,
    ),
    Mistake(
        "each gradient clipped by itself",
        "chainer",
        (
            (
                "            gradient *= min(self.limit / (norm + 1e-6), 1.0)",
                "            gradient *= min(self.limit / (np.linalg.norm(gradient) + 1e-6), 1.0)",
            ),
        ),
        ("optimizer clipped",),
        (r"clip|norm", r"each|parameter|itself|global|layer|tensor|alone"),
        False,
    ),
    Mistake(
        "cosine one step late",
        "chainer",
        (("min(optimizer.t, 20) / 20", "min(max(optimizer.t - 1, 0), 20) / 20"),),
        ("optimizer cosine",),
        (r"cosine|schedule|learning rate", r"step|late|delay|shift|behind|off by"),
        False,
    ),
    Mistake(
        "half forgotten in the loss",
        "chainer",
        (("/ (2 * len(t))", "/ len(t)"),),
        ("loss",),
        (r"\b2(\.0)?\b|0\.5|half|twice|double", r"loss|factor|times|scal|\*|mean|sum|twice"),
        False,
    ),
    Mistake(
        "another learning rate",
        "chainer",
        (("optimizers.SGD(lr=0.05)", "optimizers.SGD(lr=0.01)"),),
        ("optimizer sgd",),
        (r"lr|learning rate|rate", r"0\.01|1e-0?2|0\.05|5e-0?2"),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "adamw as a chain",
        "jax",
        (
            (
                "optax.adamw(1e-3, weight_decay=1e-2)",
                "optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(1e-2),"
                " optax.scale(-1e-3))",
            ),
        ),
    ),
    Right(
        "momentum as a trace",
        "jax",
        (
            (
                "optax.sgd(0.02, momentum=0.9)",
                "optax.trace(0.9), optax.scale_by_learning_rate(0.02)",
            ),
        ),
    ),
    Right(
        "schedule by its formula",
        "jax",
        (
            (
                "optax.sgd(optax.cosine_decay_schedule(0.1, 20))",
                "optax.sgd(lambda n: 0.05 * (1 + jnp.cos(jnp.pi * jnp.minimum(n, 20) / 20)))",
            ),
        ),
    ),
    Right(
        "decay with a learning rate in the state",
        "jax",
        (("optax.adam(2e-3, b2=0.98", "optax.inject_hyperparams(optax.adam)(2e-3, b2=0.98"),),
    ),
    Right(
        "loss of optax",
        "jax",
        (
            (
                "0.5 * jnp.mean(jnp.sum(jnp.square(error), axis=-1))",
                "optax.l2_loss(error).sum(axis=-1).mean()",
            ),
        ),
    ),
    Right(
        "gelu by its formula",
        "jax",
        (
            (
                "jax.nn.gelu(self.ln(self.dense1(x)), approximate=False)",
                "self.exact(self.ln(self.dense1(x)))",
            ),
            (
                "    def __call__(self, x):\n",
                "    def exact(self, x):\n"
                "        return x * jax.scipy.stats.norm.cdf(x)\n\n"
                "    def __call__(self, x):\n",
            ),
        ),
    ),
    Right(
        "norm by hand",
        "jax",
        (
            (
                "x = jax.nn.gelu(self.ln(self.dense1(x)), approximate=False)",
                "x = self.dense1(x)\n"
                "        x = x - x.mean(-1, keepdims=True)\n"
                "        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)\n"
                "        x = x * self.ln.scale + self.ln.bias\n"
                "        x = jax.nn.gelu(x, approximate=False)",
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "loss by Chainer's function",
        "chainer",
        (("F.sum((network(x) - t) ** 2) / (2 * len(t))", "F.mean_squared_error(network(x), t)"),),
    ),
    Right(
        "a list of links",
        "chainer",
        (
            ("            self.l1 = L.Linear(5, 12)\n", ""),
            ("            self.l2 = L.Linear(12, 8)\n", ""),
            (
                "            self.l3 = L.Linear(8, 2)\n",
                "            self.stack = chainer.ChainList(\n"
                "                L.Linear(5, 12), L.Linear(12, 8), L.Linear(8, 2)\n"
                "            )\n",
            ),
            ("gelu(self.ln(self.l1(x)))", "gelu(self.ln(self.stack[0](x)))"),
            ("self.l3(gelu(self.l2(h)))", "self.stack[2](gelu(self.stack[1](h)))"),
            ("(port.l1, port.l2, port.l3)", "port.stack"),
        ),
    ),
    Right(
        "own Adam, written apart",
        "chainer",
        (
            (
                "        param.array -= hp.alpha * (m / (1 - hp.beta1**self.t)) / root\n",
                "        step = m / (1 - hp.beta1**self.t) / root\n"
                "        param.array[...] = param.array - hp.alpha * step\n",
            ),
        ),
    ),
    Right(
        "rate set just before the update",
        "chainer",
        (
            (
                '    name = "Cosine"\n    call_for_each_param = False\n    timing = "post"\n',
                '    name = "Cosine"\n    call_for_each_param = False\n    timing = "pre"\n',
            ),
        ),
    ),
    Right(
        "decay as a hook of its own",
        "chainer",
        (
            (
                "made(optimizers.SGD(lr=0.05), net, decay(1e-3))",
                "made(optimizers.SGD(lr=0.05), net, Decay())",
            ),
            (
                "def made(",
                "class Decay:\n"
                '    name = "Decay"\n'
                "    call_for_each_param = False\n"
                '    timing = "pre"\n\n'
                "    def __call__(self, optimizer):\n"
                "        for p in optimizer.target.params():\n"
                "            if p.grad is not None:\n"
                "                p.grad = p.grad + 1e-3 * p.array\n\n\n"
                "def made(",
            ),
        ),
    ),
)
