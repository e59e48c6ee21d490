"""One architecture is the same network on every backend: values, gradients, statistics, steps, copies, compilers."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest

from deliralike import backends, rules, zoo
from tests.conftest import BACKENDS

# label: (architecture, settings, shape of a batch); odd sizes, and every kind of layer and number of axes
CASES = {
    "mlp": ("mlp", {"in_features": 7, "out_features": 3, "hidden": (9, 5), "activation": "gelu"}, (5, 7)),
    "lenet": ("lenet", {"image_size": 21}, (3, 1, 21, 21)),
    "resnet8": ("resnet8", {"num_classes": 4}, (3, 1, 9, 7)),
    "resnet18": ("resnet18", {"num_classes": 5}, (2, 3, 33, 33)),
    "grouped, dilated": (
        "resnext50_32x4d",
        {
            "num_classes": 5,
            "layers": (1, 1, 1, 2),
            "groups": 4,
            "width_per_group": 16,
            "replace_stride_with_dilation": (False, False, True),
        },
        (2, 3, 33, 35),
    ),  # fmt: skip
    "resnet18 in 1d": ("resnet18", {"num_classes": 5, "dims": 1, "layers": (1, 1, 1, 1)}, (3, 3, 65)),
    "resnet8 in 3d": ("resnet8", {"dims": 3, "shortcut": "B"}, (2, 1, 5, 7, 6)),
    "unet in 1d": ("unet", {"dims": 1, "features": (4, 6, 6), "norm": "group", "num_groups": 2}, (2, 1, 19)),
    "unet": ("unet", {"features": (4, 6, 5)}, (2, 1, 13, 11)),
    "unet resized": ("unet", {"features": (4, 6, 8, 5), "upsample": "nontrainable", "norm": "batch"}, (2, 1, 13, 11)),
    "unet in 3d": ("unet", {"dims": 3, "features": (4, 6, 5), "norm": None}, (2, 1, 5, 7, 6)),
}
# the compilers take long over groups
LABELS = [pytest.param(label, marks=pytest.mark.slow) if "grouped" in label else label for label in CASES]
LIGHT = ("mlp", "lenet", "resnet8", "unet")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """JAX compiles without most of its optimisations: the same values up to rounding, in a third of the time."""
    if "jax" not in BACKENDS:
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def build(backend, label, **options):
    name, settings, _ = CASES[label]
    return zoo.build(name, backend=backend, **settings, **options)


def batch(label, dtype="float64"):
    """Inputs and labels: one for each sample, or for each position of a segmentation."""
    name, settings, shape = CASES[label]
    generator = np.random.default_rng(3)
    x = generator.standard_normal(shape).astype(dtype)
    _, classes = zoo.outline(name, shape[1:], **settings).output[:2]
    target = (shape[0], *shape[2:]) if name == "unet" else shape[:1]
    return x, generator.integers(0, classes, target)


def loss(network, x, y):
    return network.nn.cross_entropy(network(x), y)


def evaluated(backend, network, x):
    with network.training_mode(False), backend.evaluating():
        return backend.numpy(network(backend.prepare(x, network)))


@cache
def results(backend, label):
    """Output in evaluation mode, then gradients of a training pass, and the state after it; in double precision."""
    network, (x, y) = build(backend, label, dtype="float64"), batch(label)
    output = evaluated(backend, network, x)
    gradients = backend.gradients(loss, network.train(), x, y)
    return output, gradients, network.neutral_state()


def close(came, wanted, scale=None):
    scale = np.abs(wanted).max(initial=1e-30) if scale is None else scale
    np.testing.assert_allclose(came, wanted, rtol=1e-10, atol=1e-10 * scale)


TORCH = backends.get("torch")


@pytest.mark.parametrize("label", LABELS)
def test_outputs_are_the_same(label, backend):
    close(results(backend, label)[0], results(TORCH, label)[0])


@pytest.mark.parametrize("label", LABELS)
def test_losses_and_gradients_are_the_same(label, backend):
    came, wanted = results(backend, label)[1], results(TORCH, label)[1]
    assert came.loss == pytest.approx(wanted.loss, rel=1e-10)
    assert list(came.parameters) == list(wanted.parameters)
    scale = max(np.abs(gradient).max() for gradient in wanted.parameters.values())
    for name, gradient in wanted.parameters.items():
        close(came.parameters[name], gradient, scale)
    close(came.inputs[0], wanted.inputs[0])


@pytest.mark.parametrize("label", LABELS)
def test_running_statistics_are_the_same(label, backend):
    came, wanted = results(backend, label)[2], results(TORCH, label)[2]
    assert list(came) == list(wanted)
    for name, value in wanted.items():
        close(came[name], value)


@pytest.mark.parametrize("label", LABELS)
def test_each_parameter_gets_a_gradient(label, backend):
    normalised = label.startswith("unet") and CASES[label][1].get("norm", "instance") in ("instance", "batch")
    for name, gradient in results(backend, label)[1].parameters.items():
        if normalised and name.endswith(".conv.bias"):
            continue  # what a bias adds, the normalisation takes away
        assert np.abs(gradient).max() > 0, name


@pytest.mark.parametrize("label", LABELS)
def test_outlines_give_the_real_shape_and_count(label, backend):
    name, settings, shape = CASES[label]
    outline = zoo.outline(name, shape[1:], **settings)
    assert (shape[0], *outline.output[1:]) == results(backend, label)[0].shape
    assert outline.parameters == sum(gradient.size for gradient in results(backend, label)[1].parameters.values())


@cache
def trained(backend, label):
    """The loss before and after two steps, and the state after them."""
    network, (x, y) = build(backend, label, dtype="float64"), batch(label)
    optimizer = backend.optimizer(rules.rule("sgd", lr=0.01, momentum=0.9), network.train())
    losses = [float(backend.numpy(optimizer.update(loss, x, y))) for _ in range(3)]
    return losses, network.neutral_state()


@pytest.mark.parametrize("label", LIGHT)
def test_training_steps_are_the_same_and_lower_the_loss(label, backend):
    (losses, state), (wanted_losses, wanted_state) = trained(backend, label), trained(TORCH, label)
    assert losses[2] < losses[0]
    assert losses == pytest.approx(wanted_losses, rel=1e-10)
    for name, value in wanted_state.items():
        close(state[name], value)


@pytest.mark.parametrize("label", ["mlp", "lenet", "resnet8"])
def test_single_precision_agrees_with_double(label, backend):
    network, (x, _) = build(backend, label), batch(label, "float32")
    output = evaluated(backend, network, x)
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, results(backend, label)[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("label", LIGHT)
def test_the_state_goes_round_through_another_network(label, backend):
    network, (x, _) = build(backend, label, dtype="float64"), batch(label)
    other = build(backend, label, dtype="float64", seed=9)
    assert not np.allclose(evaluated(backend, other, x), evaluated(backend, network, x))
    assert other.load_neutral_state(network.neutral_state()).complete
    np.testing.assert_array_equal(evaluated(backend, other, x), evaluated(backend, network, x))


COPIES = {"copy": copy.deepcopy, "pickle": lambda network: pickle.loads(pickle.dumps(network))}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("label", LIGHT)
def test_copies_are_equal_and_own_their_weights(label, way, backend):
    network, (x, _) = build(backend, label, dtype="float64"), batch(label)
    before = evaluated(backend, network, x)
    twin = COPIES[way](network)
    np.testing.assert_array_equal(evaluated(backend, twin, x), before)
    network.load_neutral_state({name: np.zeros_like(value) for name, value in network.neutral_state().items()})
    np.testing.assert_array_equal(evaluated(backend, twin, x), before)
    assert twin.init_kwargs == network.init_kwargs


@pytest.mark.parametrize("label", LIGHT)
def test_the_representation_names_the_class(label, backend):
    network = build(backend, label)
    assert type(network).__name__ in repr(network)


@pytest.mark.parametrize("label", ["resnet18", "grouped, dilated", "unet", "unet in 3d", "mlp", "lenet"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_torch_traces_the_whole_network_without_a_break(label, training):
    import torch

    network = build("torch", label, dtype="float64").train(training)
    x = torch.from_numpy(batch(label)[0])
    expected = copy.deepcopy(network)(x)
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("label", ["resnet8", "unet", "mlp"])
@pytest.mark.skipif("jax" not in BACKENDS, reason="JAX is left out on request")
def test_nnx_compiles_the_network_with_its_statistics(label):
    from flax import nnx

    backend = backends.get("jax")
    network, x = build(backend, label, dtype="float64").train(), batch(label)[0]
    x = backend.prepare(x, network)
    twin = copy.deepcopy(network)
    expected = backend.numpy(twin(x))
    close(backend.numpy(nnx.jit(lambda net, x: net(x))(network, x)), expected)
    for name, value in twin.neutral_state().items():
        close(network.neutral_state()[name], value)
