# ruff: noqa: E501
"""What people get wrong with batch norms over replicas, and other ways to write them."""

from tests.score.case import Mistake, Right

REPLICAS = ("replicas 2", "bn1", "bn2")
BN = ("bn1", "bn2")
SHARE = r"share|shard|replica|local|each"

MISTAKES = (
    Mistake(
        "mean of the shares' means",
        "jax",
        (
            (
                "mean = sum(part.sum(axes) for part in parts) / count",
                "mean = sum(part.mean(axes) for part in parts) / len(parts)",
            ),
        ),
        REPLICAS,
        (r"mean|average|weight", SHARE),
        False,
    ),
    Mistake(
        "mean of the shares' variances",
        "jax",
        (
            (
                "var = sum(jnp.square(part - mean).sum(axes) for part in parts) / count",
                "var = sum(part.var(axes) * part.size for part in parts) / x.size",
            ),
        ),
        REPLICAS,
        (r"varian|statistic|norm", SHARE),
        False,
    ),
    Mistake(
        "statistics of each share",
        "jax",
        (
            (
                "        return self.normalized(x, mean, var)\n\n    def normalized",
                "        return jnp.concatenate(\n"
                "            [self.normalized(p, p.mean(axes), p.var(axes)) for p in parts]\n"
                "        )\n\n    def normalized",
            ),
        ),
        REPLICAS,
        (r"statistic|norm|local|synchron", SHARE),
        False,
    ),
    Mistake(
        "running statistics of the first share",
        "jax",
        (
            (
                "self.remember(mean, var * count / (count - 1))",
                "first = parts[0].size // x.shape[-1]\n"
                "        self.remember(parts[0].mean(axes), parts[0].var(axes) * first / (first - 1))",
            ),
        ),
        REPLICAS,
        (r"running|statistic|mean|varian", rf"first|{SHARE}"),
        False,
    ),
    Mistake(
        "mean of the shares' losses",
        "jax",
        (
            (
                "return sum(share.sum() for share in shares) / len(losses)",
                "return sum(share.mean() for share in shares) / len(shares)",
            ),
        ),
        ("replicas 2", "loss"),
        (r"mean|average|weight", SHARE),
        False,
    ),
    Mistake(
        "gradients of replicas added",
        "jax",
        (
            (
                "return sum(share.sum() for share in shares) / len(losses)",
                "return sum(share.sum() for share in shares) * network.shares / len(losses)",
            ),
        ),
        ("replicas 2", "loss"),
        (r"sum|times|factor|\b2(\.0)?\b|number of replicas", r"mean|2|replica|share"),
        False,
    ),
    Mistake(
        "remainder dropped",
        "jax",
        (
            (
                "return sum(share.sum() for share in shares) / len(losses)",
                "size = len(losses) // network.shares\n"
                "    return sum(share[:size].sum() for share in shares) / (size * network.shares)",
            ),
        ),
        ("replicas 2", "loss"),
        (r"drop|remainder|last|left out|without|sample",),
        False,
    ),
    Mistake(
        "momentum of PyTorch's meaning",
        "jax",
        (("momentum=0.9, epsilon", "momentum=0.1, epsilon"),),
        BN,
        (r"momentum", r"swap|exchang|0\.9|0\.1|share of the (old|new)"),
        False,
    ),
    Mistake(
        "biased running variance",
        "jax",
        (("self.remember(mean, var * count / (count - 1))", "self.remember(mean, var)"),),
        BN,
        (r"varian|running_var", r"bias"),
        False,
    ),
    Mistake(
        "unbiased variance in training",
        "jax",
        (
            (
                "return self.normalized(x, mean, var)\n\n",
                "return self.normalized(x, mean, var * count / (count - 1))\n\n",
            ),
        ),
        BN,
        (r"varian|var\b", r"unbiased|n ?- ?1|correct"),
        False,
    ),
    Mistake(
        "mean of the shares' means",
        "chainer",
        (
            (
                "mean = sum(F.sum(part, axis=axes) for part in parts) / count",
                "mean = sum(F.mean(part, axis=axes) for part in parts) / len(parts)",
            ),
            (
                "square = sum(F.sum(part**2, axis=axes) for part in parts) / count",
                "square = sum(F.mean(part**2, axis=axes) for part in parts) / len(parts)",
            ),
        ),
        REPLICAS,
        (r"mean|average|weight", SHARE),
        False,
    ),
    Mistake(
        "statistics of the first share",
        "chainer",
        (
            (
                "        mean = sum(F.sum(part",
                "        parts, count = parts[:1], parts[0].size // x.shape[1]\n        mean = sum(F.sum(part",
            ),
        ),
        REPLICAS,
        (r"statistic|norm|local|first|synchron", rf"first|{SHARE}"),
        False,
    ),
    Mistake(
        "mean of the shares' losses",
        "chainer",
        (
            ("F.sum(each[share[0] : share[-1] + 1])", "F.mean(each[share[0] : share[-1] + 1])"),
            ("    return total / len(t)", "    return total / len(shares)"),
        ),
        ("replicas 2", "loss"),
        (r"mean|average|weight", SHARE),
        False,
    ),
    Mistake(
        "running statistics not shared",
        "chainer",
        (
            (
                "        self.avg_mean = self.decay * self.avg_mean + (1 - self.decay) * mean.array\n",
                "        self.avg_mean = self.decay * self.avg_mean + (1 - self.decay) * mean.array / self.shares\n",
            ),
        ),
        REPLICAS,
        (r"running_mean|running|mean", rf"half|0\.5|\b2(\.0)?\b|{SHARE}|divi"),
        False,
    ),
    Mistake(
        "Chainer's epsilon",
        "chainer",
        (("decay=0.9, eps=1e-5", "decay=0.9, eps=2e-5"),),
        BN,
        (r"eps", r"2e-0?5|1e-0?5"),
        True,
    ),
    Mistake(
        "biased running variance",
        "chainer",
        (("unbiased = var.array * count / (count - 1)", "unbiased = var.array"),),
        BN,
        (r"varian|running_var", r"bias"),
        False,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right(
        "one-pass statistics",
        "jax",
        (
            (
                "var = sum(jnp.square(part - mean).sum(axes) for part in parts) / count",
                "var = sum(jnp.square(part).sum(axes) for part in parts) / count - mean**2",
            ),
        ),
    ),
    Right(
        "weighted means",
        "jax",
        (
            (
                "mean = sum(part.sum(axes) for part in parts) / count",
                "mean = sum(part.mean(axes) * len(part) for part in parts) / len(x)",
            ),
        ),
    ),
    Right(
        "weighted losses",
        "jax",
        (
            (
                "return sum(share.sum() for share in shares) / len(losses)",
                "return sum(share.mean() * len(share) / len(losses) for share in shares)",
            ),
        ),
    ),
    Right(
        "another cut",
        "jax",
        (
            (
                "parts = jnp.array_split(x, self.shares)",
                "parts = [x[index :: self.shares] for index in range(self.shares)]",
            ),
        ),
    ),
    Right(
        "flattened for flax's order",
        "jax",
        (
            ("jnp.transpose(x, (0, 3, 1, 2)).reshape(len(x), -1)", "x.reshape(len(x), -1)"),
            (
                'net.hidden.kernel[...] = w["fc1.weight"].T',
                'net.hidden.kernel[...] = w["fc1.weight"].reshape(7, 6, 2, 3).transpose(2, 3, 1, 0).reshape(36, 7)',
            ),
            ('WEIGHTS = "load"', 'WEIGHTS = "judge"'),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "two-pass variance",
        "chainer",
        (
            (
                "        square = sum(F.sum(part**2, axis=axes) for part in parts) / count\n",
                "        wide = mean.reshape((1, -1) + (1,) * (x.ndim - 2))\n",
            ),
            (
                "var = square - mean**2",
                "var = sum(F.sum((p - F.broadcast_to(wide, p.shape)) ** 2, axis=axes) for p in parts) / count",
            ),
        ),
    ),
    Right(
        "whole loss",
        "chainer",
        (
            ("    shares = np.array_split(np.arange(len(t)), network.shares)\n", ""),
            ("    total = sum(F.sum(each[share[0] : share[-1] + 1]) for share in shares)\n", ""),
            ("    return total / len(t)", "    return F.mean(each)"),
        ),
    ),
    Right(
        "optimizer set up in one line",
        "chainer",
        (
            (
                "    optimizer = chainer.optimizers.SGD(lr=0.1)\n    optimizer.setup(network)\n    return optimizer\n",
                "    return chainer.optimizers.SGD(0.1).setup(network)\n",
            ),
        ),
    ),
    Right(
        "registered in another order",
        "chainer",
        (
            ("            self.n1 = MultiNorm(6)\n", ""),
            (
                "            self.l2 = L.Linear(7, 3)\n",
                "            self.l2 = L.Linear(7, 3)\n            self.n1 = MultiNorm(6)\n",
            ),
        ),
    ),
)
