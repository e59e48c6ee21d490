# ruff: noqa: E501
"""What people get wrong in detectors, and other ways to write them."""

from tests.score.case import Mistake, Right

OUTSIDE = ("", "the network", "output", "the output", "output['boxes']", "output boxes", "box_head")
SCORES = ("", "the network", "output", "the output", "output['scores']", "cls_head")
SUM = ("the input of fpn.smooth", "the input of smooth", "fpn")

MISTAKES = (
    Mistake(
        "default epsilon of flax's group norm",
        "jax",
        (
            (
                "self.gn_b = nnx.GroupNorm(8, num_groups=2, epsilon=1e-5, rngs=rngs)",
                "self.gn_b = nnx.GroupNorm(8, num_groups=2, rngs=rngs)",
            ),
        ),
        ("backbone.norm2",),
        (r"eps", r"1e-0?6|1e-0?5"),
        True,
    ),
    Mistake(
        "SAME padding",
        "jax",
        (
            (
                "self.conv_b = nnx.Conv(6, 8, (3, 3), strides=2, padding=PAD, rngs=rngs)",
                'self.conv_b = nnx.Conv(6, 8, (3, 3), strides=2, padding="SAME", rngs=rngs)',
            ),
        ),
        ("backbone.conv2",),
        (r"pad", r"same|\(0, ?1\)|asymmetric|\(1, ?1\)"),
        True,
    ),
    Mistake(
        "groups in another number",
        "jax",
        (("nnx.GroupNorm(6, num_groups=2,", "nnx.GroupNorm(6, num_groups=3,"),),
        ("backbone.norm1",),
        (r"group", r"\b3\b|\b2\b"),
        True,
    ),
    Mistake(
        "bilinear resizing",
        "jax",
        (('2 * w, c), "nearest")', '2 * w, c), "bilinear")'),),
        SUM,
        (r"linear", r"nearest"),
        True,
    ),
    Mistake(
        "scores with classes before anchors",
        "jax",
        (
            (
                "self.classify(p).reshape(n, h * w * 2, 2)",
                "self.classify(p).reshape(n, h * w, 2, 2).swapaxes(2, 3).reshape(n, -1, 2)",
            ),
        ),
        SCORES,
        (
            r"order|swap|transpos|axes|axis|exchang|permut",
            r"anchor|channel|class|axes|axis|flatten|reshape|permut|order",
        ),
        True,
    ),
    Mistake(
        "columns before rows",
        "jax",
        (
            (
                "self.regress(p).reshape(n, h * w * 2, 4)",
                "self.regress(p).swapaxes(1, 2).reshape(n, h * w * 2, 4)",
            ),
        ),
        OUTSIDE,
        (
            r"order|swap|transpos|axes|axis|exchang|permut",
            r"row|column|height|width|axes|axis|permut|flatten|reshape|order",
        ),
        True,
    ),
    Mistake(
        "anchors with x and y exchanged",
        "jax",
        (("centre = np.stack([x, y], axis=-1)", "centre = np.stack([y, x], axis=-1)"),),
        OUTSIDE,
        (r"anchor|constant|\bx\b|order|swap|exchang", r"order|swap|exchang|x|y|anchor"),
        True,
    ),
    Mistake(
        "centres at the corner of cells",
        "jax",
        (("np.arange(width) + 0.5", "np.arange(width)"),),
        OUTSIDE,
        (
            r"0\.5|\b1(\.0)?\b|offset|shift|anchor|constant",
            r"anchor|add|\+|offset|shift|constant|sum",
        ),
        True,
    ),
    Mistake(
        "sizes without exp",
        "jax",
        (("anchors[:, 2:] * jnp.exp(deltas[..., 2:])", "anchors[:, 2:] * (1 + deltas[..., 2:])"),),
        OUTSIDE,
        (r"exp",),
        True,
    ),
    Mistake(
        "coarse level first",
        "jax",
        (("zip(levels, (2, 4))", "zip(levels[::-1], (4, 2))"),),
        ("", "the network", "output", "the output"),
        (r"order|revers|swap|exchang", r"level|join|concat|order|part"),
        True,
    ),
    Mistake(
        "beta of one",
        "jax",
        (("def smooth_l1(x, beta=0.5):", "def smooth_l1(x, beta=1.0):"),),
        ("loss",),
        (r"beta|delta|smooth|huber|threshold", r"\b1(\.0)?\b|0\.5"),
        False,
    ),
    Mistake(
        "all anchors counted",
        "jax",
        (("jnp.maximum(jnp.sum(positive), 1)", "positive.size"),),
        ("loss",),
        (r"divi|mean|denominator|count|factor|times|scal|normal", r"\d"),
        False,
    ),
    Mistake(
        "weight of the boxes",
        "jax",
        (("jnp.mean(entropy) + 0.5 * regression", "jnp.mean(entropy) + regression"),),
        ("loss",),
        (r"\b1(\.0)?\b|0\.5|\b2(\.0)?\b", r"weight|factor|times|scal|regression|smooth|box|\*|l1"),
        False,
    ),
    Mistake(
        "default epsilon of Chainer's norm is right, groups are not",
        "chainer",
        (("L.GroupNormalization(2, 8, eps=1e-5)", "L.GroupNormalization(4, 8, eps=1e-5)"),),
        ("backbone.norm2",),
        (r"group", r"\b4\b|\b2\b"),
        True,
    ),
    Mistake(
        "flattened channels first",
        "chainer",
        (
            (
                "F.transpose(x, (0, 2, 3, 1)).reshape(len(x), -1, size)",
                "x.reshape(len(x), -1, size)",
            ),
        ),
        ("", "the network", "output", "the output", *OUTSIDE, *SCORES),
        (r"order|transpos|channel|nchw|permut|flatten|reshape",),
        True,
    ),
    Mistake(
        "features resized with corners aligned",
        "chainer",
        (("F.unpooling_2d(p2, 2, cover_all=False)", "F.resize_images(p2, (8, 6))"),),
        SUM,
        (r"linear|align", r"nearest|align"),
        True,
    ),
    Mistake(
        "no activation on the coarse level",
        "chainer",
        (("h2 = F.relu(self.gn2(self.conv2(h1)))", "h2 = self.gn2(self.conv2(h1))"),),
        (
            "the input of fpn.lateral2",
            "the input of lateral2",
            "backbone",
            "fpn.lateral2",
            "output of backbone",
            "the output of backbone",
        ),
        (r"relu", r"no |not |without|missing|identity|instead|left out"),
        True,
    ),
    Mistake(
        "huber not divided",
        "chainer",
        (
            ("near = 0.5 * difference**2 / 0.5", "near = 0.5 * difference**2"),
            ("near, difference - 0.25)", "near, 0.5 * (difference - 0.25))"),
        ),
        ("loss",),
        (r"beta|delta|smooth|huber|half|times|factor|scal", r"0\.5|half|\b2(\.0)?\b"),
        False,
    ),
    Mistake(
        "classes summed",
        "chainer",
        (("return F.mean(entropy) + 0.5", "return F.sum(entropy) + 0.5"),),
        ("loss",),
        (r"sum|\b480(\.0)?\b", r"mean|480"),
        False,
    ),
)

LIST = (
    (
        'return {"scores": jnp.concatenate(scores, axis=1), "boxes": boxes}',
        "return [jnp.concatenate(scores, axis=1), boxes]",
    ),
    ('out["boxes"] - boxes', "out[1] - boxes"),
    ('s = out["scores"]', "s = out[0]"),
)
OTHER_ORDER = (
    (
        'return {"scores": jnp.concatenate(scores, axis=1), "boxes": boxes}',
        'return {"boxes": boxes, "logits": jnp.concatenate(scores, axis=1)}',
    ),
    ('s = out["scores"]', 's = out["logits"]'),
)

RIGHT = (
    Right("as it is", "jax"),
    Right("outputs in a list", "jax", LIST),
    Right("outputs by other names", "jax", OTHER_ORDER),
    Right(
        "nearest by repeating",
        "jax",
        (
            (
                'jax.image.resize(p3, (n, 2 * h, 2 * w, c), "nearest")',
                "jnp.repeat(jnp.repeat(p3, 2, axis=1), 2, axis=2)",
            ),
        ),
    ),
    Right(
        "heads registered first",
        "jax",
        (
            (
                "        self.stem = Stem(rngs)\n        self.neck = Pyramid(rngs)\n",
                "",
            ),
            (
                "        self.regress = nnx.Conv(5, 8, (3, 3), padding=PAD, rngs=rngs)\n",
                "        self.regress = nnx.Conv(5, 8, (3, 3), padding=PAD, rngs=rngs)\n"
                "        self.neck = Pyramid(rngs)\n        self.stem = Stem(rngs)\n",
            ),
        ),
    ),
    Right(
        "both heads in one convolution",
        "jax",
        (
            (
                """        self.classify = nnx.Conv(5, 4, (3, 3), padding=PAD, rngs=rngs)
        self.regress = nnx.Conv(5, 8, (3, 3), padding=PAD, rngs=rngs)
""",
                """        self.heads = nnx.Conv(5, 12, (3, 3), padding=PAD, rngs=rngs)
""",
            ),
            (
                "            n, h, w, _ = p.shape\n            scores",
                "            n, h, w, _ = p.shape\n            both = self.heads(p)\n            scores",
            ),
            ("self.classify(p).reshape", "both[..., :4].reshape"),
            ("self.regress(p).reshape", "both[..., 4:].reshape"),
            (
                """        (model.classify, reference.cls_head),
        (model.regress, reference.box_head),
""",
                "",
            ),
            (
                "    for ours, theirs in convolutions:\n",
                """    heads = (reference.cls_head, reference.box_head)
    kernels = [head.weight.detach().numpy().transpose(2, 3, 1, 0) for head in heads]
    model.heads.kernel[...] = np.concatenate(kernels, axis=-1)
    model.heads.bias[...] = np.concatenate([head.bias.detach().numpy() for head in heads])
    for ours, theirs in convolutions:
""",
            ),
        ),
    ),
    Right(
        "smooth distance by optax",
        "jax",
        (
            ("import numpy as np\n", "import numpy as np\nimport optax\n"),
            (
                'smooth_l1(out["boxes"] - boxes)',
                'optax.huber_loss(out["boxes"], boxes, delta=0.5) / 0.5',
            ),
        ),
    ),
    Right("as it is", "chainer"),
    Right(
        "distance by Chainer's function",
        "chainer",
        (
            ('    difference = F.absolute(out["boxes"] - boxes)\n', ""),
            ("    near = 0.5 * difference**2 / 0.5\n", ""),
            (
                "F.sum(F.where(difference.array < 0.5, near, difference - 0.25), axis=2)",
                'F.sum(F.huber_loss(out["boxes"], boxes, 0.5, reduce="no"), axis=2) / 0.5',
            ),
        ),
    ),
    Right(
        "a tuple of outputs",
        "chainer",
        (
            (
                'return {"scores": F.concat(confs, axis=1), "boxes": F.concat([xy, wh], axis=2)}',
                "return F.concat([xy, wh], axis=2), F.concat(confs, axis=1)",
            ),
            ("    out = network(x)\n", "    boxes_out, scores = network(x)\n"),
            ('out["boxes"] - boxes', "boxes_out - boxes"),
            ('    scores = out["scores"]\n', ""),
        ),
    ),
    Right(
        "nearest by repeating",
        "chainer",
        (
            (
                "F.unpooling_2d(p2, 2, cover_all=False)",
                "F.repeat(F.repeat(p2, 2, axis=2), 2, axis=3)",
            ),
        ),
    ),
    Right(
        "anchors kept with the network",
        "chainer",
        (
            (
                "        self.anchors = np.concatenate([grid(8, 6, 2), grid(4, 3, 4)])\n",
                '        self.add_persistent("anchors", np.concatenate([grid(8, 6, 2), grid(4, 3, 4)]))\n',
            ),
        ),
    ),
)
