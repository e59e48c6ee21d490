"""Every architecture, by name: published counts, and the same network on every backend in all that
one does with it."""

import copy
import fnmatch
import pickle

import numpy as np
import pytest
import torch

from deliralike import backends, nest, zoo
from deliralike.zoo.inputs import is_shape
from tests.conftest import BACKENDS
from tests.zoo.case import built, by_path, close, evaluate, evaluated, ours, started, stepped
from tests.zoo.cases import CASES, FAMILIES

NAMES = zoo.list()
TOLERANCE = 1e-10
# JAX compiles each program for seconds. Which of them the short suite trains there (and in steps
# anywhere), of which it makes copies there, and which ones PyTorch traces:
TRAINED = {
    "mlp",
    "resnet8",
    "lstm_classifier",
    "gpt2",
    "bert_tiny classifier",
    "unet in 1d",
    "conv_vae",
    "vit_b_16",
    "mobilenet_v3_large",
    "squeezenet1_0",
    "nnunet norm last",
    "wgan_gp_critic",
}
SAMPLES = {"mlp", "resnet8", "lstm_classifier", "gpt2", "unet in 1d"}
TRACED = {"resnet8", "lstm_classifier", "nnunet norm last"}
EXPORTED = sorted(FAMILIES | TRACED)
JAX = FAMILIES | SAMPLES
BETWEEN = {"clip_vit_b_32"}  # outputs (batch, batch), between any two samples
assert set(CASES) >= TRAINED | SAMPLES | TRACED


def everywhere(on_jax, elsewhere=CASES):
    """Cases with each backend; the named ones in the short suite, on JAX fewer than elsewhere."""
    return [
        case.as_parameter(name, long=label not in (on_jax if name == "jax" else elsewhere))
        for label, case in CASES.items()
        for name in BACKENDS
    ]


def in_families(on_jax, elsewhere=FAMILIES):
    """The same, what depends on a network's class more than on its settings: on JAX once for each
    class."""
    return [
        entry
        for entry in everywhere(on_jax, elsewhere)
        if entry.values[1] != "jax" or entry.values[0] in JAX
    ]


# Each name, at its full size
# -----------------------------------------------------------------------------


def test_every_architecture_is_covered_by_a_case():
    assert {name for case in CASES.values() for name in case.names} == set(NAMES)


def test_a_case_stands_for_the_names_that_it_covers():
    """What a case changes makes the names that it covers one and the same network."""
    wrong = []
    for label, case in CASES.items():
        architectures = [zoo.find(name) for name in case.names]
        settings = {
            str(sorted({**a.settings, **case.settings}.items(), key=str)) for a in architectures
        }
        if {a.network for a in architectures} != {zoo.find(case.name).network} or len(
            settings
        ) != 1:
            wrong.append(label)
    assert not wrong


def test_the_number_of_parameters_is_the_published_one():
    known = {
        name: zoo.find(name).parameters for name in NAMES if zoo.find(name).parameters is not None
    }
    assert {name: zoo.outline(name).parameters for name in known} == known
    assert len(known) > 100


def test_stem_and_head_are_there():
    wrong = []
    for name in NAMES:
        built = zoo.find(name).on(backends.outline.BACKEND)()
        blocks = dict(built.named_blocks())
        wrong += [
            (name, path) for path in (*built.stem_paths, *built.head_paths) if path not in blocks
        ]
        if built.head_paths and built.outputs not in zoo.find(name).settings:
            wrong.append((name, built.outputs))
    assert not wrong


@pytest.mark.long
def test_stages_are_there():
    stages = {name: zoo.stages(name) for name in NAMES}
    assert [name for name, found in stages.items() if not found] == []
    assert [
        name
        for name, found in stages.items()
        if any(stage.channels <= 0 for stage in found.values())
    ] == []


@pytest.mark.xdist_group("together")
def test_tests_of_one_group_run_in_one_process(request):
    """The tests of a case share its results; pytest-xdist sends them to one process by what it adds
    to their names."""
    assert request.node.nodeid.endswith("@together") == getattr(
        request.config.option, "loadgroup", False
    )


# Each case, on every backend
# -----------------------------------------------------------------------------


@pytest.mark.every_case
@pytest.mark.parametrize(("label", "name"), everywhere(FAMILIES))
def test_outputs_in_evaluation_are_the_same_on_every_backend_and_as_outlined(label, name):
    case = CASES[label]
    came, wanted = evaluated(label, name), evaluated(label, "torch")
    assert list(came) == list(wanted)
    for path, leaf in wanted.items():
        close(came[path], leaf, TOLERANCE, name=path)
    outline = zoo.outline(case.name, case.entries(), **case.settings)
    shapes = []
    for leaf in came.values():
        is_between = label in BETWEEN and leaf.shape == (case.batch, case.batch)
        shapes.append((1, 1) if is_between else (1, *leaf.shape[1:]))
    assert shapes == [tuple(leaf) for leaf in nest.flatten(outline.output, is_shape)[0]]
    assert outline.parameters == built(label, name).count_parameters()


@pytest.mark.parametrize(("label", "name"), everywhere(TRAINED))
def test_training_gives_the_same_on_every_backend(label, name):
    came, wanted = ours(label, name), ours(label, "torch")
    for path, leaf in came.trained.items():
        close(leaf, wanted.trained[path], TOLERANCE, name=path)
    assert came.loss == pytest.approx(wanted.loss, rel=TOLERANCE, abs=1e-13)
    assert list(came.parameters) == list(wanted.parameters)
    scale = max(
        (np.abs(gradient).max(initial=0.0) for gradient in wanted.parameters.values()), default=1.0
    )
    for key, gradient in wanted.parameters.items():
        assert came.parameters[key].shape == gradient.shape, key
        close(came.parameters[key], gradient, TOLERANCE, scale, key)
    for mine, gradient in zip(came.inputs, wanted.inputs, strict=True):
        close(mine, gradient, TOLERANCE)
    assert list(came.state) == list(wanted.state)
    for key, value in wanted.state.items():
        close(came.state[key], value, TOLERANCE, name=key)


@pytest.mark.parametrize(("label", "name"), everywhere(TRAINED))
def test_each_parameter_gets_a_gradient(label, name):
    gradients = ours(label, name).parameters
    scale = max((np.abs(gradient).max(initial=0.0) for gradient in gradients.values()), default=1.0)
    for key, gradient in gradients.items():
        zero = any(fnmatch.fnmatchcase(key, pattern) for pattern in CASES[label].zero)
        assert zero or np.abs(gradient).max() > 1e-14 * scale, key


@pytest.mark.parametrize(("label", "name"), in_families(SAMPLES, TRAINED))
def test_training_steps_are_the_same_on_every_backend(label, name):
    (losses, state), (wanted_losses, wanted_state) = stepped(label, name), stepped(label, "torch")
    assert losses[1] < losses[0]
    assert losses == pytest.approx(wanted_losses, rel=1e-9, abs=1e-12)
    for key, value in wanted_state.items():
        close(state[key], value, 1e-9, name=key)


@pytest.mark.parametrize(("label", "name"), in_families(SAMPLES))
def test_single_precision_is_near_double(label, name):
    network = started(label, name, "float32")
    came = evaluate(backends.get(name), network, CASES[label].inputs("float32"))
    for path, leaf in evaluated(label, name).items():
        assert came[path].dtype == (np.float32 if leaf.dtype.kind == "f" else leaf.dtype)
        close(came[path], leaf, 2e-3, name=path)


@pytest.mark.parametrize(("label", "name"), in_families(SAMPLES))
def test_the_state_goes_round_and_copies_own_their_weights(label, name):
    case = CASES[label]
    network = case.build(
        name
    )  # unlike the shared one in the mode in which it is made, which JAX's repr shows
    state = network.neutral_state()
    other = case.build(name, seed=9)
    assert other.load_neutral_state(state).complete
    twin, pickled = copy.deepcopy(other), pickle.loads(pickle.dumps(other))
    twin.load_neutral_state({key: np.zeros_like(value) for key, value in state.items()})
    for copied in (other, pickled):
        for key, value in copied.neutral_state().items():
            np.testing.assert_array_equal(value, state[key])
    assert twin.init_kwargs == pickled.init_kwargs == network.init_kwargs
    assert repr(pickled) == repr(network)


@pytest.mark.parametrize(
    "label", [case.as_parameter(long=label not in TRACED) for label, case in CASES.items()]
)
def test_torch_traces_the_whole_network_in_training_without_a_break(label):
    case = CASES[label]
    network = case.build("torch").train()
    inputs = [torch.from_numpy(x) for x in case.inputs()]
    expected = by_path(copy.deepcopy(network)(*inputs), lambda leaf: leaf.detach().numpy())
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    came = by_path(compiled(*inputs), lambda leaf: leaf.detach().numpy())
    for path, leaf in expected.items():
        close(came[path], leaf, 1e-12, name=path)


@pytest.mark.parametrize(
    "label", [CASES[label].as_parameter(long=label not in TRACED) for label in EXPORTED]
)
def test_torch_exports_the_network_as_one_graph_for_batches_of_any_size(label):
    case = CASES[label]
    network = case.build("torch").eval()
    inputs = tuple(torch.from_numpy(x) for x in case.inputs())
    batch = torch.export.Dim("batch")
    exported = torch.export.export(
        network,
        inputs,
        dynamic_shapes=tuple({0: batch} for _ in inputs),
        strict=True,  # traced as a compiler does
    )
    for size in (1, 3):
        others = tuple(torch.cat([x, x])[:size] for x in inputs)
        expected = by_path(network(*others), lambda leaf: leaf.detach().numpy())
        came = by_path(exported.module()(*others), lambda leaf: leaf.detach().numpy())
        for path, leaf in came.items():
            close(leaf, expected[path], 1e-12, name=path)


@pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer is left out on request")
@pytest.mark.parametrize(
    "label", [case.as_parameter(long=label not in TRAINED) for label, case in CASES.items()]
)
def test_chainers_own_copy_owns_its_weights(label):
    network = built(label, "chainer")
    state, twin = network.neutral_state(), network.copy("copy")
    assert list(twin.neutral_state()) == list(state)
    assert twin.count_parameters() == network.count_parameters()  # what was tied is tied
    for parameter in twin.params():
        parameter.array[...] = 0
    for name, value in network.neutral_state().items():
        np.testing.assert_array_equal(value, state[name])


@pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer is left out on request")
@pytest.mark.parametrize("mode", ["share", "init"])
@pytest.mark.parametrize("label", ["mlp", "resnet8", "unet"])
def test_chainers_own_copy_may_share_arrays(label, mode):
    network = CASES[label].build("chainer")
    first, mine = next(network.copy(mode).params()), next(network.params())
    assert (first.array is mine.array) == (mode == "share")
