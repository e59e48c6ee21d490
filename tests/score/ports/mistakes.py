"""What people get wrong in these ports: what is edited, where that is, and words for it."""

from tests.score.case import Mistake

NETWORK = "the network"


def _mistake(backend, port, name, old, new, places, *cause):
    """A row: the port and its mistake."""
    return port, Mistake(name, backend, ((old, new),), places, cause)


def _flax(*row):
    return _mistake("jax", *row)


def _chainer(*row):
    return _mistake("chainer", *row)


GPT, UNET, PAIR = "language model, tied", "u-net, channels last", "pair, texts first"
GRU, COPIED, RESNET = (
    "recurrent, written out",
    "residual, copied",
    "residual, by position",
)
ATTENTION = ("attn", "attn.in_proj_weight", "attn.in_proj_bias")
NORMS = ("b0", "b1")
MISTAKES = (
    _flax(
        GPT, "queries copied to keys", "zip((gpt.q, gpt.k, ", "zip((gpt.k, gpt.q, ",
        ATTENTION, "swap|exchang|order|permut|quer|key",
    ),
    _flax(
        GPT, "every word is seen", "is_causal=True", "is_causal=False",
        ATTENTION, "causal|mask",
    ),
    _flax(
        GPT, "exact GELU", "(self.norms[1](h)))", "(self.norms[1](h)), approximate=False)",
        ("", NETWORK, "the input of down"), "approximate|tanh|exact|erf",
    ),
    _flax(
        GPT, "last norm forgotten", "attend(self.norms[2](h))", "attend(h)",
        ("", "norm", "the input of norm", "the input of head"), "without|left out|norm|missing",
    ),
    _flax(
        GRU, "gates exchanged", "r2, z2, n2 = ", "z2, r2, n2 = ",
        ("", "gru", "gru.weight_hh_l0", "gru.bias_hh_l0"), "gate", "order|swap|exchang",
    ),
    _flax(
        GRU, "state not carried", "* (h - n)", "* (0 - n)",
        ("", "gru"), "state|carr|step|hidden",
    ),
    _flax(
        GRU, "recurrent bias forgotten", "theirs.bias_hh_l0)", "0 * theirs.bias_hh_l0)",
        ("gru.bias_hh_l0", "gru"), r"zero|\b0(\.0)?\b|missing|without",
    ),
    _flax(
        GRU, "padding is trained", "jax.lax.stop_gradient(e), e)", "e, e)",
        ("emb", "emb.weight"), "padding",
    ),
    _flax(
        COPIED, "biased running variance", "0.1 * var * n / (n - 1)", "0.1 * var",
        NORMS, "(?<!un)biased",
    ),
    _flax(
        COPIED, "epsilon outside of the root", "jnp.sqrt(var + 1e-5)", "(jnp.sqrt(var) + 1e-5)",
        NORMS, "eps", "root|sqrt|outside|deviation",
    ),
    _flax(
        COPIED, "head not permuted", "reshape(4, 5, 3, 4).transpose(0, 2, 3, 1)",
        "reshape(4, 5, 3, 4)", ("fc", "fc.weight", "the input of fc"),
        "order|flatten|permut|transp",
    ),
    _flax(  # equal for 11 x 15 pixels
        COPIED, "SAME in the stem", "padding=2", 'padding="SAME"',
        ("c0",), "pad", r"same|asymmetric|\(1, ?2\)",
    ),
    _flax(
        UNET, "concatenated the other way", "(skip, self.deconv(low))", "(self.deconv(low), skip)",
        ("", NETWORK, "the input of merge", "merge.weight"), "order|concat|swap|exchang",
    ),
    _flax(
        PAIR, "scale without exp", "jnp.exp(self.logit_scale[...])", "self.logit_scale[...]",
        ("", NETWORK, "scale"), r"\bexp\b|factor|scale",
    ),
    _chainer(
        RESNET, "default epsilon", "self.bn_b = L.BatchNormalization(5, decay=0.9, eps=1e-5)",
        "self.bn_b = L.BatchNormalization(5, decay=0.9)", ("b1",), "eps", "2e-0?5",
    ),
    _chainer(
        RESNET, "decay for momentum", "self.bn_a = L.BatchNormalization(5, decay=0.9",
        "self.bn_a = L.BatchNormalization(5, decay=0.1", ("b0",), "momentum|decay", r"0\.[19]",
    ),
    _chainer(
        RESNET, "norm after the sum", "bn_b(self.conv_b(h)) + h", "bn_b(self.conv_b(h) + h)",
        ("", NETWORK, "b1", "the input of b1"), "order|before|after|sum|term|skip",
    ),
    _chainer(
        "sentences, as pictures", "share that is kept", "F.hstack(h), 0.4", "F.hstack(h), 0.6",
        ("d",), "dropout|rate|keep", r"0\.6",
    ),
    _chainer(
        "sentences, as pictures", "concatenated the other way", "in (self.w2, self.w3)]",
        "in (self.w3, self.w2)]", ("", NETWORK, "the input of d"), "order|concat|swap|exchang",
    ),
    _chainer(
        PAIR, "default epsilon", "(self.li(image), 1e-12)", "(self.li(image))",
        ("", NETWORK), "eps", "1e-0?5",
    ),
    _chainer(
        PAIR, "activation forgotten", "F.tanh(self.lt(text))", "self.lt(text)",
        ("", NETWORK), "tanh|activation|without|left out",
    ),
    _chainer(
        "u-net, unit written out", "groups of channels", "L.GroupNormalization(2, c)",
        "L.GroupNormalization(4, c)", ("down1.1",), "group", r"\b4\b",
    ),
)  # fmt: skip
