"""Every architecture, by name: published counts, and the same network on every backend in all that one does with it."""

import copy
import fnmatch
import pickle

import numpy as np
import pytest
import torch

from deliralike import backends, nest, zoo
from deliralike.zoo.registry import is_shape
from tests.conftest import BACKENDS
from tests.zoo.case import by_path, close, evaluate, ours, start_state, stepped
from tests.zoo.cases import CASES

LABELS = [case.as_parameter() for case in CASES.values()]
NAMES = zoo.list()
TOLERANCE = 1e-10


# Each name, at its full size ------------------------------------------------------------------------------------------


def test_every_architecture_is_covered_by_a_case():
    assert {name for case in CASES.values() for name in case.names} == set(NAMES)


@pytest.mark.parametrize("label", CASES)
def test_a_case_stands_for_the_names_that_it_covers(label):
    """What a case changes makes the names that it covers one and the same network."""
    case = CASES[label]
    architectures = [zoo.find(name) for name in case.names]
    settings = {str(sorted({**a.settings, **case.settings}.items(), key=str)) for a in architectures}
    assert {a.network for a in architectures} == {zoo.find(case.name).network}
    assert len(settings) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_parameters_is_the_published_one(name):
    architecture = zoo.find(name)
    assert zoo.outline(name).parameters == architecture.parameters or architecture.parameters is None


@pytest.mark.parametrize("name", NAMES)
def test_stages_stem_and_head_are_there(name):
    architecture = zoo.find(name)
    stages = zoo.stages(name)
    assert stages
    assert all(stage.channels > 0 for stage in stages.values())
    built = architecture.on(backends.outline.BACKEND)()
    blocks = dict(built.named_blocks())
    assert all(path in blocks for path in (*built.stem_paths, *built.head_paths))
    assert built.outputs in architecture.settings


@pytest.mark.xdist_group("together")
def test_tests_of_one_group_run_in_one_process(request):
    """The tests of a case share its results; pytest-xdist sends them to one process by what it adds to their names."""
    assert request.node.nodeid.endswith("@together") == getattr(request.config.option, "loadgroup", False)


# Each case, on every backend ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
def test_outputs_are_the_same_on_every_backend(label, backend):
    came, wanted = ours(label, backend.name), ours(label, "torch")
    for path, leaf in wanted.evaluated.items():
        close(came.evaluated[path], leaf, TOLERANCE, name=path)
    for path, leaf in came.trained.items():
        close(leaf, wanted.trained[path], TOLERANCE, name=path)
    assert came.loss == pytest.approx(wanted.loss, rel=TOLERANCE, abs=1e-13)


@pytest.mark.parametrize("label", LABELS)
def test_gradients_and_statistics_are_the_same_on_every_backend(label, backend):
    came, wanted = ours(label, backend.name), ours(label, "torch")
    assert list(came.parameters) == list(wanted.parameters)
    scale = max((np.abs(gradient).max(initial=0.0) for gradient in wanted.parameters.values()), default=1.0)
    for name, gradient in wanted.parameters.items():
        close(came.parameters[name], gradient, TOLERANCE, scale, name)
    for mine, gradient in zip(came.inputs, wanted.inputs, strict=True):
        close(mine, gradient, TOLERANCE)
    assert list(came.state) == list(wanted.state)
    for name, value in wanted.state.items():
        close(came.state[name], value, TOLERANCE, name=name)


@pytest.mark.parametrize("label", LABELS)
def test_each_parameter_gets_a_gradient(label, backend):
    gradients = ours(label, backend.name).parameters
    scale = max((np.abs(gradient).max(initial=0.0) for gradient in gradients.values()), default=1.0)
    for name, gradient in gradients.items():
        zero = any(fnmatch.fnmatchcase(name, pattern) for pattern in CASES[label].zero)
        assert zero or np.abs(gradient).max() > 1e-14 * scale, name


@pytest.mark.parametrize("label", LABELS)
def test_outlines_give_the_real_shapes_and_count(label, backend):
    case = CASES[label]
    outline = zoo.outline(case.name, case.entries(), **case.settings)
    real = ours(label, backend.name)
    shapes = {path: (1, *leaf.shape[1:]) for path, leaf in real.evaluated.items()}
    assert list(shapes.values()) == [tuple(leaf) for leaf in nest.flatten(outline.output, is_shape)[0]]
    assert outline.parameters == case.build(backend.name).count_parameters()


@pytest.mark.parametrize("label", LABELS)
def test_training_steps_are_the_same_on_every_backend(label, backend):
    (losses, state), (wanted_losses, wanted_state) = stepped(label, backend.name), stepped(label, "torch")
    assert losses[1] < losses[0]
    assert losses == pytest.approx(wanted_losses, rel=1e-9, abs=1e-12)
    for name, value in wanted_state.items():
        close(state[name], value, 1e-9, name=name)


@pytest.mark.parametrize("label", LABELS)
def test_single_precision_is_near_double(label, backend):
    case = CASES[label]
    network = case.build(backend.name, "float32")
    network.load_neutral_state(start_state(label))
    came = evaluate(backend, network, case.inputs("float32"))
    for path, leaf in ours(label, backend.name).evaluated.items():
        assert came[path].dtype == (np.float32 if leaf.dtype.kind == "f" else leaf.dtype)
        close(came[path], leaf, 2e-3, name=path)


@pytest.mark.parametrize("label", LABELS)
def test_the_state_goes_round_and_copies_own_their_weights(label, backend):
    case = CASES[label]
    network = case.build(backend.name)
    state = network.neutral_state()
    other = case.build(backend.name, seed=9)
    assert other.load_neutral_state(state).complete
    twin, pickled = copy.deepcopy(other), pickle.loads(pickle.dumps(other))
    twin.load_neutral_state({name: np.zeros_like(value) for name, value in state.items()})
    for copied in (other, pickled):
        for name, value in copied.neutral_state().items():
            np.testing.assert_array_equal(value, state[name])
    assert twin.init_kwargs == pickled.init_kwargs == network.init_kwargs
    assert repr(pickled) == repr(network)


@pytest.mark.parametrize("label", LABELS)
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


@pytest.mark.parametrize("label", LABELS)
def test_torch_exports_the_network_as_one_graph(label):
    case = CASES[label]
    network = case.build("torch").eval()
    inputs = tuple(torch.from_numpy(x) for x in case.inputs())
    exported = torch.export.export(network, inputs, strict=True)  # strict: traced as a compiler does
    expected = by_path(network(*inputs), lambda leaf: leaf.detach().numpy())
    for path, leaf in by_path(exported.module()(*inputs), lambda leaf: leaf.detach().numpy()).items():
        close(leaf, expected[path], 1e-12, name=path)


@pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer is left out on request")
@pytest.mark.parametrize("label", LABELS)
def test_chainers_own_copy_owns_its_weights(label):
    network = CASES[label].build("chainer")
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
