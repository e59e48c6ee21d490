"""What is done between layers is told from the arrays alone: each case is computed here in plain
NumPy."""

import math

import numpy as np
import pytest

from deliralike.conformance.explain.wiring import Differing, Made, Use, Wiring
from deliralike.conformance.explain.wiring import explain as explained
from tests.conformance.small import into, source, tap


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


X, Y, Z = (numbers(4, 3, 5, 6, seed=seed) for seed in range(3))
TOKENS = np.array([[3, 1, 0, 0], [2, 3, 1, 0], [1, 3, 2, 2]])
VECTORS, MORE = numbers(3, 4, 7, seed=4), numbers(3, 4, 7, seed=5)


def relu(x):
    return np.where(x > 0, x, 0.0)


def explain(sources, reference, candidate, gradients, differing=(), **more):
    """Why code between layers differs; sources and taps by the words of a report."""
    given = {source(words): array for words, array in sources.items()}
    slopes = {source(words): pair for words, pair in gradients.items()}
    for name in {"calls", "beyond", "given", "kinds"} & more.keys():
        more[name] = {tap(words): value for words, value in more[name].items()}
    if "order" in more:
        more["order"] = tuple(map(tap, more["order"]))
    return explained(Wiring(given, reference, candidate, slopes, differing, **more))


def why(sources, reference, candidate, what=into("head"), **more):
    differing = (Differing(what, reference, candidate),)
    return explain(sources, reference, candidate, {}, differing, **more)


def known(found, *words):
    assert found is not None and found.known, found
    assert all(word in found.cause for word in words), found.cause


def test_a_table_rounded_to_float32_is_not_explained_by_a_factor_of_one():
    """As of positions, which PyTorch's buffer has in float32, and a port computes in float64."""
    table = 0.1 * numbers(5, 6, seed=7)
    rounded = table.astype(np.float32).astype(float)
    found = why({"args[0]": X}, X + rounded, X + table)
    assert found is None or not found.known, found


BLOCK = {"args[0]": X, "the output of conv": Z, "the output of norm": Y}
CALLS = {"conv": ((X,), {}), "norm": ((Z,), {})}


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (Y, ["the shortcut (the input args[0]) is missing"]),
        (X, ["the branch (the output of norm) is missing"]),
        (Y - X, ["the shortcut (the input args[0]) has the wrong sign"]),
        (Y + 0.37 * X, ["the shortcut (the input args[0]) is scaled by the factor 0.37"]),
        (X + 0.1 * Y, ["the branch (the output of norm) is scaled by the factor 0.1"]),
        ((X + Y) / 2, ["scaled by the factor 0.5"]),
        (X + Z, ["the output of conv is in the place of the branch"]),
        (X + Y + Z, ["the sum has more terms", "the output of conv"]),
        (X * Y, ["the product of"]),
        (np.maximum(X, Y), ["the maximum of the input args[0] and the output of norm"]),
        (X + relu(Y), ["the input args[0] + relu of the output of norm"]),
        (relu(X + Y), ["relu"]),
        (np.zeros_like(X), ["zeros instead of"]),
        ((X + Y)[:, ::-1], ["reversed along axis 1", "channels"]),
        (np.swapaxes(X + Y, 2, 3), ["transposed"]),
    ],
)
def test_sums(candidate, words):
    known(why(BLOCK, X + Y, candidate, calls=CALLS), "the input of head being", *words)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (X - Y + Z, "the input args[0] + the output of conv - the output of norm"),
        (X - 2 * Y - Z, "the input args[0] - the output of conv - 2 * the output of norm"),
        (1 - X, "-the input args[0] + 1"),
        (2 * X - 2, "2 * the input args[0] - 2"),
    ],
)
def test_a_sum_in_words(candidate, words):
    found = why(BLOCK, X + Y, candidate, calls=CALLS)
    known(found, f"the input of head being {words} instead of the input args[0] + the output of")


@pytest.mark.parametrize(
    "candidate", [X + Y + 1e-3 * np.sin(40 * Z), (X + Y) ** 3, np.sort(X + Y, axis=1)]
)
def test_what_has_no_formula_is_not_explained(candidate):
    found = why(BLOCK, X + Y, candidate, calls=CALLS)
    assert found is None or not found.known


def test_few_numbers_are_not_explained_by_many_factors():
    sources = {f"args[{n}]": numbers(2, 3, seed=n) for n in range(5)}
    found = why(sources, sources["args[0]"], numbers(2, 3, seed=9))
    assert found is None or not found.known


PLACES = np.arange(6)
DISTANCE = PLACES - PLACES[:, None]
SEEN = np.where(np.abs(DISTANCE) <= 2, 0.0, -np.inf)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (np.where(DISTANCE <= 0, 0.0, -np.inf), ["a causal mask", "-5 to 0", "instead of"]),
        (np.where(DISTANCE >= 0, 0.0, -1e9), ["an anticausal mask"]),
        (np.zeros((6, 6)), ["nothing is masked"]),
        (np.where(np.abs(DISTANCE) <= 1, 0.0, -30.0), ["off by one", "others -30"]),
        (np.where(np.abs(DISTANCE) > 2, 0.0, -np.inf), ["the mask is inverted"]),
        (np.where((np.abs(DISTANCE) <= 2) & (DISTANCE != 0), 0.0, -np.inf), ["not seen by itself"]),
    ],
)
def test_attention_masks(candidate, words):
    what = into("attention", "attn_mask")
    known(
        why({"args[0]": TOKENS}, SEEN, candidate, what),
        "the input of attention (attn_mask)",
        *words,
    )


def test_a_causal_mask_that_is_left_out_beside_padding():
    padding = np.arange(6) < np.array([6, 4])[:, None, None]
    what = into("attention", "attn_mask")
    found = why({"args[0]": TOKENS}, (DISTANCE <= 0) & padding, padding & (DISTANCE < 9), what)
    known(found, "the input of attention (attn_mask)", "not causal")


def test_a_setting_of_a_call():
    what = into("attention", "is_causal")
    found = why({"args[0]": TOKENS}, True, False, what)
    assert found.cause == "the input of attention (is_causal) being False instead of True"
    assert found.known and found.match == 0.0


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (TOKENS != 0, "inverted"),
        (np.zeros_like(TOKENS == 0), "set nowhere"),
    ],
)
def test_padding_masks(candidate, words):
    assert why({"args[0]": TOKENS}, TOKENS == 0, candidate) is not None
    found = why({"args[0]": TOKENS}, TOKENS == 0, candidate)
    assert found.known and (words in found.cause or "!= 0" in found.cause)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (np.arange(1, 6), "off by one"),
        (np.arange(5)[::-1].copy(), "reversed along axis 0"),
        (np.full(5, 2), "2 for all"),
    ],
)
def test_indices(candidate, words):
    found = why({"args[0]": TOKENS}, np.arange(5), candidate)
    assert found.known and (words in found.cause or "4 minus" in found.cause)


@pytest.mark.parametrize(
    ("candidate", "words", "where"),
    [
        ((VECTORS + MORE).mean(1), "the mean of (", "over axis 1"),
        ((VECTORS + MORE)[:, 0], "the first element of (", "along axis 1"),
        ((VECTORS + MORE)[:, -1], "the last element of (", "along axis 1"),
        ((VECTORS + MORE)[:, -2], "the last element but one of (", "along axis 1"),
    ],
)
def test_pooling_over_tokens(candidate, words, where):
    kept = TOKENS[..., None] != 0
    sources = {"args[0]": VECTORS, "the output of attention": MORE, "the output of kept": kept}
    right = ((VECTORS + MORE) * kept).sum(1) / kept.sum(1)
    known(why(sources, right, candidate), words, where, "the output of attention")


def test_one_row_of_a_picture():
    known(
        why({"args[0]": X}, X, X[:, :, -1:]),
        "the last row of the input args[0] along axis 2 instead of",
    )
    known(why({"args[0]": X[:, :, :2, :1]}, X, X[:, :, 1:2, :1]), "the last row of")


def test_sums_where_a_mask_is_set():
    kept = TOKENS[..., None] != 0
    sources = {"args[0]": VECTORS, "the output of attention": MORE, "the output of kept": kept}
    known(
        why(sources, (VECTORS + MORE) * kept, MORE * kept),
        "the input args[0] is missing",
        "where the output of kept",
    )
    known(
        why(sources, (VECTORS + MORE) * kept, (VECTORS + MORE) * ~kept),
        "where not the output of kept",
    )


def test_a_layer_left_out_or_called_twice():
    sources = {"args[0]": X, "the output of conv": Y}
    calls = {"conv": ((X,), {}), "head": ((Y,), {})}
    known(why(sources, Y, X, calls=calls, order=("head",)), "conv is not called")
    again = {"conv#2": Made((Y,), {}, Z)}
    found = why(sources, Y, Z, calls=calls, order=("conv", "head"), beyond=again)
    known(found, "conv once more(the output of conv)", "conv is called twice instead of once")


def test_a_call_that_cannot_be_done_again_proves_nothing():
    sources = {"args[0]": X, "the output of conv": Y}
    found = why(sources, Y, Z, beyond={"softmax()": Made((Y, 1), {}, Z, 0.3)})
    assert found is None or not found.known
    found = why(sources, Y, Z, beyond={"softmax()": Made((numbers(4, 3, 5, 6, seed=8), 1), {}, Z)})
    assert found is None or not found.known
    known(
        why(sources, Y, Z, beyond={"softmax()": Made((Y, 1), {}, Z)}),
        "softmax(the output of conv, 1)",
    )


def test_gradients_cut_off():
    to_conv, to_sum = numbers(4, 3, 5, 6, seed=6), numbers(4, 3, 5, 6, seed=7)
    uses = (Use(tap("conv"), X, to_conv), Use(tap("relu"), X + 0.5 * Y, to_sum))
    sources = {"args[0]": X, "the output of norm": Y}

    def found(theirs):
        return explain(sources, X, X, {"args[0]": (to_conv + to_sum, theirs)}, uses=uses)

    known(found(to_conv), "no gradient through the input args[0] into relu")
    known(found(to_sum), "no gradient through the input args[0] into conv")
    known(found(0.0 * X), "no gradient through the input args[0] (detached)")
    known(found(2.0 * (to_conv + to_sum)), "times 2")
    assert not found(to_conv * to_sum).known


def gelu(x):
    return x * np.vectorize(math.erfc)(-x / math.sqrt(2.0)) / 2


def gelu_by_tanh(x):
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_a_call_that_is_left_out_is_named_with_its_class():
    sources = {"the output of norm": X, "the output of act": relu(X)}
    given = {"norm": ((Y,), {}), "act": ((X,), {})}
    found = why(sources, relu(X), X, given=given, kinds={"act": "ReLU"})
    known(found, "the output of norm instead of the output of act (ReLU); act (ReLU) is left out")


def test_another_activation_is_told_with_the_one_that_it_replaces():
    sources = {"the output of fc": X, "the output of act": gelu_by_tanh(X)}
    found = why(sources, gelu_by_tanh(X), gelu(X), given={"act": ((X,), {})}, kinds={"act": "GELU"})
    words = "instead of gelu (tanh approximation) of the output of fc (act (GELU))"
    known(found, "gelu (erf) of the output of fc", words)


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (VECTORS.mean(1), VECTORS[:, :-1].mean(1), ["the mean", "without its last element"]),
        (VECTORS.mean(1), VECTORS[:, 1:].sum(1), ["the sum", "without its first element"]),
        (VECTORS.mean(1), VECTORS.max(1), ["the maximum"]),
        (
            (VECTORS + MORE).transpose(0, 2, 1),
            MORE.transpose(0, 2, 1),
            ["the input args[0] is missing", "(the input args[0] + the output of attention)"],
        ),
        (
            VECTORS.reshape(3, 28),
            relu(VECTORS).transpose(0, 2, 1).reshape(3, 28),
            ["relu of the input args[0]", "transposed to the order (0, 2, 1)"],
        ),
        (VECTORS * MORE, VECTORS * np.tanh(MORE), ["times tanh of the output of attention"]),
        (
            VECTORS.reshape(3, 2, 14),
            VECTORS.reshape(3, 14, 2).transpose(0, 2, 1),
            ["reshaped to (3, 14, 2) and transposed to the order (0, 2, 1)"],
        ),
    ],
)
def test_tokens_in_other_ways(reference, candidate, words):
    sources = {"args[0]": VECTORS, "the output of attention": MORE}
    known(why(sources, reference, candidate), *words)


def test_what_a_layer_is_given_is_at_hand_for_formulas():
    tokens = numbers(3, 6, 5, seed=7)
    sources = {"args[0]": numbers(3, 9, seed=8), "the output of pool": tokens.mean(1)}
    given = {"pool": ((tokens,), {}), "head": ((tokens.mean(1),), {})}
    found = why(sources, tokens.mean(1), tokens[:, :-1].mean(1), given=given)
    known(found, "the mean of the input of pool over axis 1 without its last element")


def test_scores_with_another_scale_beside_their_mask():
    products = numbers(2, 6, 6, seed=9)
    right = np.where(DISTANCE <= 0, 0.5 * products, -np.inf)
    found = why({"the output of matmul()": products}, right, right / 2)
    known(found, "0.25 * the output of matmul() instead of 0.5 * the output of matmul()")


TERMS = {"the output of bce()": np.array(0.7), "the output of bce()#2": np.array(1.9)}


def test_one_number_is_no_evidence_of_a_factor():
    found = why(TERMS, np.array(0.7 + 0.5 * 1.9), np.array(3.0178))
    assert found is None or not found.known


def test_terms_of_a_loss_are_told_by_gradients():
    slopes = {"the output of net": (X, 0.2 * X), "args[0]": (Y, Y)}
    differing = (Differing(into("head"), np.array(1.0), np.array(0.8137)),)
    found = explain({"the output of net": Z}, np.array(1.0), np.array(0.8137), slopes, differing)
    known(found, "gradient of the output of net times 0.2")


def test_a_gradient_that_is_not_stopped():
    into_first, into_second = numbers(4, 3, 5, 6, seed=6), numbers(4, 3, 5, 6, seed=7)
    uses = (Use(tap("judge"), X, into_first), Use(tap("judge#2"), X, into_second))
    slopes = {"the output of net": (into_first, into_first + into_second)}
    found = explain({"the output of net": X}, X, X, slopes, uses=uses)
    known(found, "a gradient through the output of net into judge#2, which is not stopped there")
