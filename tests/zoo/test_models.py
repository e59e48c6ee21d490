"""Every architecture: published counts by name; and each case, at a size that a test can afford,
proved to be the same network on every backend."""

import copy
import fnmatch
import pickle
import re

import numpy as np
import pytest
import torch

from deliralike import backends, nest, zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.conformance import compare, distance_loss
from deliralike.errors import SettingError, ShapeError, UnknownName
from deliralike.zoo.inputs import is_shape
from deliralike.zoo.summary import count_parameters
from tests.conftest import BACKENDS
from tests.zoo.case import (
    assert_same,
    built,
    by_path,
    close,
    computed,
    evaluate,
    on_torch,
    ours,
    start_state,
    started,
)
from tests.zoo.cases import CASES, FAMILIES

NAMES = zoo.list()
CLASSES = sorted(CASES[label].name for label in FAMILIES)
CLASSIFIERS = [
    CASES[label].as_parameter()
    for label in sorted(FAMILIES - {"mlp"})  # which wants an output
    if zoo.find(CASES[label].name).task == "classification"
]
BETWEEN = {"clip_vit_b_32"}  # outputs (batch, batch), between any two samples
# What depends on layers, and not on the network that has them: one of layers and statistics, one
# of tied weights, one of recurrent layers.
SAMPLES = ("resnet8", "gpt2", "lstm_classifier")


def on_each(backends_and_labels):
    """Labels with backends, as parameters of a test."""
    return [
        CASES[label].as_parameter(name)
        for name, labels in backends_and_labels.items()
        for label in sorted(labels)  # the same order in each process
        if name in BACKENDS
    ]


# JAX compiles for seconds: there the families by what their networks compute, each with its
# smallest one; the other classes are compositions of the same blocks, and run on Chainer. A value
# that is looked at in a forward pass shows in the outline of every case, which has no values.
ON_JAX = frozenset(
    {
        *(
            "lenet",
            "vgg11",
            "squeezenet1_0",
            "inception_time",
            "tcn",
            "wavenet",
            "resnet8",
        ),
        *("resnetv2_50", "mobilenet_v3_large", "convnext_tiny", "mlp", "mixer_s32_224"),
        *("vit_b_16", "swin_t", "samvit_base_patch16", "fcn_resnet50", "fpn", "nnunet"),
        *(
            "dcgan_generator",
            "dcgan_discriminator",
            "wgan_gp_critic",
            "vae",
            "conv_vae",
        ),
        *(
            "diffusion_model_unet",
            "transformer_classifier",
            "gpt2",
            "llama_3_2_1b",
            "t5_small",
        ),
        "lstm_classifier",
    }
)
# TorchDynamo breaks at forms of Python code: one of each.
TRACED = (
    "resnet8",
    "densenet121",
    "swin_t",
    "samvit_base_patch16",
    "fcn_resnet50",
    "nnunet",
)
TRACED += (
    "conv_vae",
    "diffusion_model_unet",
    "t5_small",
    "llama_3_2_1b",
    "lstm_classifier",
)
TRACED += ("wavenet",)


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
            str(sorted({**a.settings, **case.settings}.items(), key=str))
            for a in architectures
        }
        network = zoo.find(case.name).network
        computes_alike = all(
            a.network is network
            or (a.network.__init__, a.network.forward)
            == (network.__init__, network.forward)
            for a in architectures
        )
        if not computes_alike or len(settings) != 1:
            wrong.append(label)
    assert not wrong


def test_the_number_of_parameters_is_the_published_one():
    known = {
        name: zoo.find(name).parameters
        for name in NAMES
        if zoo.find(name).parameters is not None
    }
    assert {name: count_parameters(name) for name in known} == known
    assert len(known) > 100


def test_stem_and_head_are_there():
    wrong = []
    for name in CLASSES:
        built = zoo.find(name).on(OUTLINE)()
        blocks = dict(built.named_blocks())
        wrong += [
            (name, path)
            for path in (*built.stem_paths, *built.head_paths)
            if path not in blocks
        ]
        if built.head_paths and built.outputs not in zoo.find(name).settings:
            wrong.append((name, built.outputs))
    assert not wrong


# Settings that may be less than 0 or empty, or are left to other tests.
FREE = {
    "dims",
    "hidden",
    "num_groups",
    "head_dim",
    "stem_channels",
    "transformer_num_layers",
}
FREE |= {"eos_token_id", "n_conv_per_stage_decoder"}
FREE |= {"global_attn_indexes"}
MAY_BE_0 = {
    "num_classes",
    "vocab_size",
    "bottleneck",
    "num_res_units",
}
MAY_BE_0 |= {"image_size", "patch_size", "register_tokens"}
MAY_BE_0 |= {"neck_chans"}


def wrong_values(key, value):
    """Values that make no sense in the place of a setting's own."""
    if key in FREE or isinstance(value, bool):
        return ()
    if isinstance(value, int):
        return (-1,) if key in MAY_BE_0 else (0, -1)
    if isinstance(value, str):
        return (value + "x",)
    is_numbers = (
        isinstance(value, tuple) and value and {type(each) for each in value} == {int}
    )
    return ((), (*value[:-1], 0)) if is_numbers else ()


def test_a_setting_of_0_or_nothing_or_a_misspelt_one_is_refused():
    wrong, refused = [], 0
    for name in CLASSES:
        architecture = zoo.find(name)
        for key, value in architecture.settings.items():
            for bad in wrong_values(key, value):
                try:
                    architecture.on(OUTLINE)(**{key: bad})
                    wrong.append(f"{name}({key}={bad!r}) is taken")
                except (SettingError, UnknownName) as error:
                    refused += 1
                    if isinstance(bad, str) and value not in str(error):
                        wrong.append(f"{name}({key}={bad!r}): {error}")
    assert not wrong
    assert refused > 550


def test_an_input_with_another_number_of_channels_is_refused_by_the_stem():
    wrong = []
    for label in sorted(FAMILIES):
        case = CASES[label]
        settings = {
            key: case.settings[key] for key in case.settings if key != "transform_input"
        }
        image, *others = case.entries()
        if len(image.shape) < 2 or image.below:
            continue
        paths = "|".join(
            map(re.escape, zoo.find(case.name).on(OUTLINE)(**settings).stem_paths)
        )
        with pytest.raises(ShapeError) as caught:
            zoo.outline(
                case.name, [(image.shape[0] + 1, *image.shape[1:]), *others], **settings
            )
        if not re.search(f" at '({paths or '.*'})'", str(caught.value)):
            wrong.append((label, str(caught.value)))
    assert not wrong


# Each case
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "name"), on_each({"chainer": FAMILIES, "jax": ON_JAX})
)
def test_a_network_is_proved_to_be_the_one_on_torch(label, name):
    """Names, outputs in both modes, loss, gradients of parameters and inputs, and statistics."""
    came, wanted = computed(label, name), computed(label, "torch")
    assert list(came.state) == list(wanted.state)
    assert list(came.parameters) == list(wanted.parameters)
    assert_same(came, wanted, 1e-9)


@pytest.mark.parametrize(
    ("label", "name"), on_each({"chainer": [*SAMPLES, "ddpm_cifar10"]})
)
def test_compare_proves_it_too(label, name):
    sides = started(label, "torch"), started(label, name)
    compare(
        *sides, CASES[label].inputs(), loss=distance_loss, levels=("L0", "L1")
    ).check()


@pytest.mark.parametrize(
    ("label", "name"), on_each({"torch": FAMILIES, "chainer": SAMPLES, "jax": SAMPLES})
)
def test_copies_own_their_weights_and_are_the_same_network(label, name):
    network = built(label, name)
    state = network.neutral_state()
    copies = [pickle.loads(pickle.dumps(network))]
    if label in SAMPLES:
        copies.append(copy.deepcopy(network))
    for copied in copies:
        assert copied.init_kwargs == network.init_kwargs
        assert repr(copied) == repr(network)
        assert (
            copied.count_parameters() == network.count_parameters()
        )  # what was tied is tied
        np.testing.assert_equal(copied.neutral_state(), state)
        copied.load_neutral_state(
            {key: np.zeros_like(value) for key, value in state.items()}
        )
    np.testing.assert_equal(network.neutral_state(), state)


@pytest.mark.parametrize("label", [case.as_parameter() for case in CASES.values()])
def test_shapes_and_parameters_are_as_outlined(label):
    case = CASES[label]
    outline = zoo.outline(case.name, case.entries(), **case.settings)
    shapes = []
    for leaf in ours(label).evaluated.values():
        is_between = label in BETWEEN and leaf.shape == (case.batch, case.batch)
        shapes.append((1, 1) if is_between else (1, *leaf.shape[1:]))
    assert shapes == [tuple(leaf) for leaf in nest.flatten(outline.output, is_shape)[0]]
    assert outline.parameters == built(label, "torch").count_parameters()


@pytest.mark.parametrize(
    "label", [CASES[label].as_parameter() for label in sorted(FAMILIES)]
)
def test_stages_are_maps_of_the_shapes_that_are_told(label):
    case, network = CASES[label], built(label, "torch").eval()
    told = zoo.stages(case.name, case.entries(), **case.settings)
    with torch.no_grad():
        found = network.forward_stages(*map(torch.from_numpy, case.inputs()))
    assert {name: stage.shape for name, stage in told.items()} == {
        name: tuple(stage.shape[1:]) for name, stage in found.items()
    }
    assert all(stage.channels > 0 for stage in told.values())


@pytest.mark.parametrize("label", CLASSIFIERS)
def test_without_classes_the_head_is_left_out_and_its_input_comes(label):
    case, generator = CASES[label], np.random.default_rng(5)
    network = case.build("torch").eval()
    settings = {**case.settings, network.outputs: 0}
    headless = on_torch(case.name, **settings)
    state, paths = network.neutral_state(), network.head_paths
    of_heads = tuple(f"{path}." for path in paths)
    gone = {
        key: state.pop(key)
        for key in list(state)
        if key.startswith((*of_heads, "aux", "Aux"))
    }
    assert list(headless.neutral_slots()) == list(state)
    if len(paths) > 1 or not isinstance(
        network.get_submodule(paths[0]), torch.nn.Linear
    ):
        return
    head = {key: generator.standard_normal(value.shape) for key, value in gone.items()}
    network.load_neutral_state(head, strict=False)
    headless.load_neutral_state(state)
    inputs = [torch.from_numpy(x) for x in case.inputs()]
    with torch.no_grad():
        features, outputs = headless(*inputs).numpy(), network(*inputs).numpy()
    came = features @ head[f"{paths[0]}.weight"].T + head.get(f"{paths[0]}.bias", 0.0)
    close(came, outputs, 1e-10)


@pytest.mark.parametrize("label", [case.as_parameter() for case in CASES.values()])
def test_each_parameter_gets_a_gradient(label):
    gradients = ours(label).parameters
    scale = max(
        (np.abs(gradient).max(initial=0.0) for gradient in gradients.values()),
        default=1.0,
    )
    for key, gradient in gradients.items():
        zero = any(fnmatch.fnmatchcase(key, pattern) for pattern in CASES[label].zero)
        assert zero or np.abs(gradient).max() > 1e-14 * scale, key


@pytest.mark.parametrize(
    ("label", "name"), on_each({"torch": SAMPLES, "chainer": FAMILIES, "jax": SAMPLES})
)
def test_single_precision_is_near_double(label, name):
    """A constant of another type would make the outputs, or an operation, one of that type."""
    case, backend = CASES[label], backends.get(name)
    network = case.build(name, "float32")
    network.load_neutral_state(start_state(label))
    came = evaluate(backend, network, case.inputs("float32"))
    for path, leaf in ours(label).evaluated.items():
        assert came[path].dtype == (
            np.float32 if leaf.dtype.kind == "f" else leaf.dtype
        )
        close(came[path], leaf, 2e-3, name=path)


@pytest.mark.parametrize(
    ("label", "name"),
    on_each(
        {
            "torch": FAMILIES,
            "chainer": {"efficientvit_b0", "mamba2_130m"},
            "jax": {"mamba2_130m"},
        }
    ),
)
def test_a_batch_of_no_samples_gives_outputs_of_no_samples(label, name):
    inputs = [x[:0] for x in CASES[label].inputs()]
    came = evaluate(backends.get(name), built(label, name), inputs)
    for path, leaf in ours(label).evaluated.items():
        is_between = label in BETWEEN and leaf.shape[0] == leaf.shape[1]
        wanted = (0, 0) if is_between else (0, *leaf.shape[1:])
        assert came[path].shape == wanted


# TorchDynamo looks at each tensor that it meets.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)
@pytest.mark.parametrize("label", [CASES[label].as_parameter() for label in TRACED])
def test_torch_traces_the_whole_network_in_training_without_a_break(label):
    network = started(label, "torch").train()
    inputs = [torch.from_numpy(x) for x in CASES[label].inputs()]
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    came = by_path(compiled(*inputs), lambda leaf: leaf.detach().numpy())
    for path, leaf in computed(label, "torch").trained.items():
        close(came[path], leaf, 1e-12, name=path)


@pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer is left out on request")
@pytest.mark.parametrize("mode", ["copy", "share", "init"])
@pytest.mark.parametrize("label", ["resnet8", "gpt2"])
def test_chainers_own_copy_shares_arrays_where_it_is_asked_to(label, mode):
    network = CASES[label].build("chainer")
    twin = network.copy(mode)
    assert (
        twin.count_parameters() == network.count_parameters()
    )  # what was tied is tied
    first, mine = next(twin.params()), next(network.params())
    assert (first.array is mine.array) == (mode == "share")
