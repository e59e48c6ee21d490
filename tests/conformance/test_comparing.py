"""The whole comparison: right networks are proved, bad input is refused or lowers the level,
nothing changes."""

import threading

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.conformance.comparing import LEVELS, compare
from deliralike.conformance.findings import FAILED, NOT_NEEDED, NOT_REACHED, PASSED
from deliralike.conformance.subject import Subject
from deliralike.errors import BatchError, ProofFailed, SettingError, UnknownName
from tests.conformance.small import (
    KINDS,
    Deep,
    Network,
    Plain,
    Shared,
    TorchNet,
    batch,
    get,
    made,
    native,
    squares,
)

FEW = ("L0", "L1", "L3")
# Where there is no explanation, it is looked for until patience ends.
UNEXPLAINED = ("L0", "L1")


def proof(reference, candidate, given=None, levels=FEW, **options):
    """A comparison; networks on JAX run op by op."""
    with get("jax").op_by_op():
        return compare(
            reference,
            candidate,
            batch() if given is None else given,
            levels=levels,
            **options,
        )


def statuses(found):
    return {level.name: level.status for level in found.levels}


def notes(found, name="L1"):
    return " ".join(found.level(name).notes)


# Right networks
# -----------------------------------------------------------------------------


def test_right_networks_are_proved(backend):
    for kind in (Deep, Shared):
        found = proof(made(kind), made(kind, backend))
        assert found.proved, found
        assert statuses(found) == {"L0": PASSED, "L1": PASSED, "L3": NOT_NEEDED}
        assert found.level("L1").worst < 1e-13


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_so_are_native_ones(name, kind):
    found = proof(native(kind, name), native(kind, name))
    assert found.proved, found


def test_all_levels_of_a_small_network_pass_and_change_nothing():
    """In float64 the networks themselves take part, in float32 copies of them do."""
    for name, dtype in (("chainer", "float64"), ("torch", "float32")):
        sides = [Plain.on(side, dtype=dtype, seed=3)() for side in ("torch", name)]
        sides[0].train()
        sides[1].eval()
        before = [side.neutral_state() for side in sides]
        random = [side.backend.random_state(side) for side in sides]
        found = proof(*sides, levels=LEVELS)
        assert found.proved, found
        assert {level.name for level in found.levels} == set(LEVELS)
        assert [side.training for side in sides] == [True, False]
        for side, state, chance in zip(sides, before, random, strict=True):
            after = side.neutral_state()
            assert {key: value.dtype for key, value in after.items()} == {
                key: v.dtype for key, v in state.items()
            }
            np.testing.assert_equal(after, state)
            assert side.dtype_name == dtype
            np.testing.assert_equal(side.backend.random_state(side), chance)
            assert all("forward" not in vars(block) for _, block in side.named_blocks())


def test_a_subject_brings_its_own_loss(backend):
    sides = [Subject(made(Plain), squares), Subject(made(Plain, backend), squares)]
    assert proof(*sides, given=batch()[:1]).proved
    wrong = sides[1].replace(loss=lambda network, x: squares(network, x) * 1.5)
    found = proof(sides[0], wrong, given=batch()[:1])
    assert found.diverges
    assert found.findings[0].place == "loss"


def test_arrays_of_a_framework_are_a_batch_too():
    for other in ("torch", "chainer"):
        assert proof(
            made(Plain), made(Plain, other), given=tuple(map(torch.tensor, batch()))
        ).proved


# Weights
# -----------------------------------------------------------------------------


def test_other_weights_diverge_or_are_taken_over(backend):
    reference, candidate = made(Plain), made(Plain, backend, seed=2)
    found = proof(reference, candidate)
    assert found.diverges
    assert statuses(found) == {"L0": FAILED, "L1": PASSED, "L3": NOT_NEEDED}
    assert proof(reference, candidate, weights="load").proved
    np.testing.assert_array_equal(
        candidate.neutral_state()["one.weight"],
        made(Plain, seed=2).neutral_state()["one.weight"],
    )


# Numbers that say nothing
# -----------------------------------------------------------------------------


class Logarithm(Network):
    """Of numbers that may be negative."""

    function = "log"

    def __init__(self):
        super().__init__()
        self.one = self.nn.Linear(4, 3)

    def forward(self, x):
        return getattr(self.nn, self.function)(self.one(x))


class Tangent(Logarithm):
    """Finite."""

    function = "tanh"


def test_nan_in_activations_decides_nothing_in_the_reference_and_diverges_in_the_candidate(
    backend,
):
    x, _ = batch()
    state = made(Logarithm).neutral_state()
    negative = int((x @ state["one.weight"].T + state["one.bias"] < 0).sum())
    found = proof(made(Logarithm), made(Logarithm, backend))
    assert (found.verdict, found.exit_code) == ("undecided", 2)
    assert (
        f"The reference is not finite at the network: {negative} of 15 elements"
        in notes(found)
    )
    assert statuses(found)["L1"] == NOT_REACHED
    assert proof(made(Tangent), made(Logarithm, backend)).diverges


class Masked(Network):
    """Some of its outputs are minus infinity, which the loss does without."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.one = self.nn.Linear(4, 3)

    def forward(self, x):
        y = self.one(x) * self.factor
        mask = np.array([0.0, 0.0, -np.inf])
        return self.nn.softmax(
            y + self.nn.constant(mask, y), dim=1
        ), y + self.nn.constant(mask, y)


def test_infinities_that_are_meant_hide_no_mistake(backend):
    class Odd(Masked):
        factor = 1.001

    def loss(network, x, labels):
        return network.nn.sum(network(x)[0][:, 0])

    assert proof(made(Masked), made(Masked, backend), loss=loss).proved
    assert proof(made(Masked), made(Odd, backend), loss=loss).diverges


class Noisy(Network):
    """A block that draws random numbers, or does not."""

    def __init__(self, draws=True):
        super().__init__()
        self.one, self.noise, self.two = (
            self.nn.Linear(4, 4),
            Noise(draws),
            self.nn.Linear(4, 3),
        )

    def forward(self, x):
        return self.two(self.noise(self.one(x)))


class Noise(Network):
    """Of NumPy's generator."""

    def __init__(self, draws):
        super().__init__()
        self.draws = draws

    def forward(self, x):
        if not self.draws:
            return x
        return x * self.nn.constant(np.random.standard_normal(tuple(x.shape)), x)


@pytest.mark.filterwarnings("ignore:Noisy draws random numbers")
def test_a_network_that_draws_random_numbers_is_named(backend):
    sides = [("candidate", made(Noisy, draws=False), made(Noisy, backend))]
    sides += [("reference", made(Noisy, backend), made(Noisy, draws=False))]
    for side, *networks in sides:
        found = proof(*networks)
        assert found.verdict == "undecided", found
        assert (
            f"The {side} is not deterministic: two equal runs in train mode differ, first at noise "
            "(Noise)" in notes(found)
        )


class Caching(Network):
    """Keeps an array of its first evaluation, which PyTorch cannot differentiate twice."""

    def __init__(self, factor):
        super().__init__()
        self.bias = self.nn.Parameter((4,), np.arange(4.0))
        self.head, self.factor, self.cache = self.nn.Linear(4, 4), factor, {}

    def forward(self, x):
        if self.training:
            return self.head(x) + self.bias
        if "bias" not in self.cache:
            self.cache["bias"] = self.bias[np.array([3, 2, 1, 0])]
        return (self.head(x) + self.cache["bias"]) * self.factor


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_network_that_remembers_an_earlier_call_is_undecided(backend):
    batch = np.random.default_rng(0).normal(size=(5, 4)), np.array([0, 1, 2, 3, 0])
    sides = Caching.on("torch")(1.0), Caching.on(backend)(1.1)
    found = compare(*sides, batch, weights="load", levels=("L0", "L1", "L3"))
    assert found.verdict == "undecided", found
    assert "two equal runs in eval mode differ" in notes(found)


# Shorter types
# -----------------------------------------------------------------------------


def test_a_backend_without_float64_decides_nothing(backend, monkeypatch):
    reference, candidate = made(Plain), Plain.on(backend.name, dtype="float32")()
    candidate.load_neutral_state(reference.neutral_state())
    monkeypatch.setattr(type(backend), "dtypes", ("float32",))
    found = proof(
        reference if backend.name != "torch" else made(Plain, "chainer"), candidate
    )
    assert (found.verdict, found.exit_code) == ("undecided", 2)
    assert statuses(found) == {"L0": PASSED, "L1": NOT_REACHED, "L3": NOT_REACHED}
    assert "no copy in float64" in notes(found)
    assert "cannot compute in 'float64'" in notes(found)


def test_a_network_that_cannot_be_copied_decides_nothing():
    class Locked(TorchNet):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    network = get("torch").wrap(Locked())
    found = proof(get("torch").wrap(TorchNet()), network, weights="load")
    assert found.verdict == "undecided"
    assert "WrappedTorchNetwork cannot be copied" in notes(found)


# Shapes
# -----------------------------------------------------------------------------


class Wide(Plain):
    """With more classes."""

    def __init__(self):
        super().__init__()
        self.two = self.nn.Linear(4, 5)


class Cut(Plain):
    """Gives fewer numbers."""

    def forward(self, x):
        return super().forward(x)[:, :2]


class Named(Plain):
    """Gives a dict."""

    def forward(self, x):
        return {"logits": super().forward(x)}


def test_weights_of_other_shapes_diverge(backend):
    found = proof(made(Plain), made(Wide, backend))
    assert found.diverges
    assert "two.weight (Linear), shape (5, 4), in the reference (3, 4)" in str(
        found.findings[0]
    )
    assert statuses(found) == {"L0": FAILED, "L1": NOT_REACHED, "L3": NOT_REACHED}
    assert (
        proof(made(Plain), made(Wide, backend), levels=("L1",)).verdict == "undecided"
    )


@pytest.mark.parametrize("kind", [Cut, Named])
def test_outputs_of_other_shapes_or_names_diverge(backend, kind):
    found = proof(made(Plain), made(kind, backend), loss=squares, given=batch()[:1])
    assert found.diverges
    assert found.level("L1").worst == np.inf


def test_networks_that_cannot_be_matched_are_not_decided(backend):
    networks = made(Plain), made(Deep, backend)
    found = proof(*networks, weights="load", levels=UNEXPLAINED)
    assert found.verdict == "undecided"
    assert "does not match" in notes(found)
    # Weights that are judged are the candidate's own, and so are the outputs that they give.
    assert proof(*networks, levels=UNEXPLAINED).verdict == "diverges"


@pytest.mark.parametrize("weights", ["load", "judge"])
def test_a_network_that_lacks_a_layer_diverges(backend, weights):
    networks = made(Deep), made(Plain, backend)
    assert proof(*networks, weights=weights, levels=UNEXPLAINED).verdict == "diverges"


# Batches, losses and options
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((np.zeros((5, 7)), np.zeros(5, int)), "raises in train mode.*ShapeError"),
        ((np.zeros((5, 4)), np.full(5, 9)), "raises in train mode.*IndexRangeError"),
    ],
)
def test_a_batch_that_does_not_fit_the_reference_is_refused(given, words):
    with pytest.raises(ProofFailed, match=words):
        proof(made(Plain), made(Plain, "chainer"), given=given)


@pytest.mark.parametrize("given", [(), batch()[:1]])
def test_a_batch_without_labels_is_refused(given):
    with pytest.raises(
        SettingError, match=r"the default loss wants \(inputs, labels\)"
    ):
        proof(made(Plain), made(Plain, "chainer"), given=given)


@pytest.mark.parametrize(
    "given", [(np.zeros((0, 4)), np.zeros(0, int)), (batch()[0], np.zeros(0, int))]
)
def test_an_empty_batch_is_refused(given):
    with pytest.raises(
        BatchError, match=r"compare: batch\[.\] has the shape .* and holds nothing"
    ):
        proof(made(Plain), made(Plain, "chainer"), given=given)


@pytest.mark.filterwarnings("ignore:cross_entropy. every label")
def test_a_batch_that_shows_no_gradient_proves_nothing(backend):
    """Else a mistake in any layer's gradient would be proved right."""

    def constant(network, x, labels):
        return network.nn.sum(network(x) * 0.0)

    for options in ({"given": (batch()[0], np.full(5, -100))}, {"loss": constant}):
        found = proof(made(Plain), made(Plain, backend), **options)
        assert found.verdict == "undecided", found
        assert "No parameter gets a gradient" in notes(found)


def test_a_network_without_parameters_is_proved_by_its_outputs(backend):
    class Bare(Network):
        def forward(self, x):
            return self.nn.tanh(x)

    assert proof(
        made(Bare), made(Bare, backend), loss=squares, given=batch()[:1]
    ).proved


def test_a_loss_that_calls_no_network_proves_nothing():
    found = proof(
        made(Plain),
        made(Plain, "chainer"),
        loss=lambda network, x, y: network.nn.sum(x),
    )
    assert not found.proved


@pytest.mark.parametrize(
    "options",
    [
        {"levels": ("L0", "L9")},
        {"levels": ("l1",)},
        {"weights": "loaded"},
        {"loss": "mse"},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(SettingError, match="compare: "):
        proof(made(Plain), made(Plain), **options)


def test_what_is_no_network_is_refused():
    with pytest.raises(
        UnknownName, match="object is a network of no available backend"
    ):
        proof(object(), made(Plain))


def test_structure_alone_proves_nothing_of_the_numbers():
    """Level L1 is always looked at: a proof without it would be none."""
    found = proof(
        made(Plain),
        made(Cut, "chainer"),
        loss=squares,
        given=batch()[:1],
        levels=("L0",),
    )
    assert found.diverges


def test_each_level_is_announced_when_it_is_begun():
    """In the order of the ladder; what is not looked at is not begun."""
    begun = []
    nets = [
        zoo.build(
            "mlp", backend="torch", in_features=3, out_features=2, dtype="float64"
        )
        for _ in range(2)
    ]
    batch = (np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 1, 1, 0, 1]))
    levels = ("L0", "L1", "L3", "L4")
    compare(*nets, batch, levels=levels, progress=lambda *step: begun.append(step))
    assert [words.split()[0] for words, _ in begun] == ["L0", "L1", "L1", "L4"]
    assert begun[1][0] == "L1 semantics in float64 (train)"
    done = [share for _, share in begun]
    assert done[0] == 0.0
    assert done == sorted(done) and done[-1] < 1.0


class Between(torch.nn.Module):
    """A linear layer, and something done to what it gives."""

    def __init__(self, change):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.change = torch.nn.Linear(3, 2), change

    def forward(self, x):
        return self.change(self.linear(x))


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda y: y.float().to(y.dtype), "undecided"),
        (lambda y: y.half().to(y.dtype), "undecided"),
        (lambda y: y * 1.0, "proved"),
        (
            lambda y: torch.round(y * 8) / 8 + y - y.detach(),
            "proved",
        ),  # of few bits, which is no rounding of a type
    ],
    ids=["float32", "float16", "plain", "steps"],
)
def test_numbers_that_were_rounded_on_the_way_prove_nothing_in_float64(change, verdict):
    values = np.random.default_rng(0).normal(size=(7, 3)), np.arange(7) % 2
    proof = compare(Between(change), Between(change), values, levels=("L0", "L1"))
    assert proof.verdict == verdict, str(proof)
    assert ("numbers of float32" in str(proof)) == (verdict == "undecided")


def test_an_input_that_is_handed_back_was_not_rounded_on_the_way():
    class WithInput(Between):
        def forward(self, x):
            return self.linear(x), x.clone()

    def loss(network, x):
        return network.nn.mean(network(x)[0] * network(x)[0])

    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    sides = WithInput(None), WithInput(None)
    proof = compare(*sides, (x,), loss=loss, levels=("L0", "L1"))
    assert proof.verdict == "proved", str(proof)
