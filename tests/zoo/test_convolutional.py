"""What is particular to the convolutional classifiers: bad input, old names, auxiliary classifiers,
start values."""

from itertools import product

import numpy as np
import pytest
import torch
import torchvision
from torchvision.models import densenet, inception
from torchvision.models.googlenet import InceptionAux as GoogLeNetAux

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.errors import ShapeError
from deliralike.zoo.classification.inception import Auxiliary
from deliralike.zoo.mobile import make_divisible
from tests.zoo.case import arrays_of, assert_same_distributions, close
from tests.zoo.cases.inception import SMALL, reference

LEAST = {
    "vgg11": 32,
    "vgg19_bn": 32,
    "alexnet": 63,
    "densenet121": 29,
    "squeezenet1_0": 21,
    "squeezenet1_1": 17,
    "googlenet": 15,
    "inception_v3": 75,
}


# Bad input
# -----------------------------------------------------------------------------


def test_the_least_size_is_torchvisions_and_a_smaller_input_is_refused(subtests):
    for name, least in LEAST.items():
        stages = "|".join([*zoo.stages(name), "transition3", "maxpool3"])
        message = (
            rf"too small for the stage '({stages})': it needs at least {least} elements"
        )
        with subtests.test(name):
            assert next(iter(torchvision.models.get_model_weights(name))).meta[
                "min_size"
            ] == (
                least,
                least,
            )
            assert zoo.outline(name, (3, least, least + 1)).output == (1, 1000)
            with pytest.raises(ShapeError, match=message):
                zoo.outline(name, (3, least + 9, least - 1))


# Stages, stem and head
# -----------------------------------------------------------------------------


FIVE = (
    "vgg16",
    "densenet121",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2_x1_0",
)
FIVE += ("regnet_y_400mf", "mnasnet0_5", "googlenet")


def test_mobilenet_v3_shrinks_as_torchvisions(subtests):
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

    names = ("mobilenet_v3_large", "mobilenet_v3_small")
    for name, arguments in product(names, ({"width_mult": 0.75}, {})):
        with torch.device("meta"):
            net = MobileNetV3(*_mobilenet_v3_conf(name, **arguments))
        wanted = [(key, tuple(value.shape)) for key, value in net.state_dict().items()]
        slots = zoo.find(name).on(OUTLINE)(**arguments).neutral_slots()
        with subtests.test(name, **arguments):
            assert [(key, slot.shape) for key, slot in slots.items()] == wanted


# Old names
# -----------------------------------------------------------------------------


def test_the_old_names_of_densenet_are_those_that_torchvision_renames(monkeypatch):
    keymap = {
        keymap.name: keymap for keymap in zoo.find("densenet121").network.keymaps
    }["old"]
    state = zoo.build("densenet121", backend="torch").neutral_state()
    old = keymap.rename(list(state))
    assert (
        old["features.denseblock1.denselayer2.norm1.weight"]
        == "features.denseblock1.denselayer2.norm.1.weight"
    )
    assert old["features.transition1.conv.weight"] == "features.transition1.conv.weight"

    class Weights:
        def get_state_dict(self, **kwargs):
            arrays = {
                old[key]: torch.from_numpy(np.array(value))
                for key, value in state.items()
            }
            return {
                key: value for key, value in arrays.items() if "num_batches" not in key
            }  # as the files of 2017

    net = densenet.densenet121()
    densenet._load_state_dict(
        net, Weights(), progress=False
    )  # torchvision's own renaming
    for key, value in net.state_dict().items():
        assert "num_batches" in key or np.array_equal(value.numpy(), state[key]), key


# Auxiliary classifiers
# -----------------------------------------------------------------------------


def test_the_auxiliary_classifier_of_inception_is_torchvisions(backend):
    theirs = inception.InceptionAux(6, 4).double().train()
    ours = Auxiliary.on(backend, dtype="float64")(6, 4).train()
    ours.load_neutral_state(arrays_of(theirs))
    x = np.random.default_rng(0).standard_normal((3, 6, 17, 18))
    close(
        backend.numpy(ours(backend.prepare(x, ours))),
        theirs(torch.from_numpy(x)),
        1e-9,
    )


def test_inception_in_training_gives_both_outputs_as_torchvision():
    theirs = reference(aux_logits=True)
    theirs.AuxLogits = inception.InceptionAux(768, 5)
    ours = zoo.build("inception_v3", backend="torch", **SMALL)
    ours.load_neutral_state(arrays_of(theirs))
    x = torch.from_numpy(
        np.random.default_rng(0).standard_normal((2, 3, 299, 299)).astype(np.float32)
    )
    with torch.no_grad():
        came, wanted = ours.train()(x), theirs.train()(x)
    assert isinstance(came, tuple)
    for mine, leaf in zip(came, wanted, strict=True):
        close(mine, leaf, 1e-3)
    with pytest.raises(ShapeError, match="'AuxLogits': it needs at least 299"):
        ours(x[..., 1:])


def test_the_published_googlenet_is_counted_without_its_auxiliary_classifiers():
    assert zoo.outline("googlenet").parameters - zoo.outline(
        "googlenet", aux_logits=False
    ).parameters == sum(
        value.numel()
        for width in (512, 528)
        for value in GoogLeNetAux(width, 1000).parameters()
    )


# Start values
# -----------------------------------------------------------------------------


class Narrow(torch.nn.Linear):
    """Linear layers of torchvision's VGG, whose widths are no settings, with 64 in the
    place of 4096."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__(
            {25088: 512, 4096: 64}.get(in_features, in_features),
            {4096: 64}.get(out_features, out_features),
            bias,
        )


@pytest.mark.parametrize(
    "name",
    ["vgg16", "vgg11_bn", "squeezenet1_1", "googlenet", "inception_v3", "mnasnet0_5"],
)
def test_start_values_have_torchvisions_distributions(name, monkeypatch):
    less = {"hidden": 64, "pooled": 1} if name.startswith("vgg") else {}
    state = zoo.build(name, backend="torch", **less).neutral_state()
    monkeypatch.setattr(torch.nn, "Linear", Narrow)
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    theirs = torchvision.models.get_model(name, **more)
    normal = {
        "googlenet": {"": 0.01},
        "inception_v3": {"": 0.1, "AuxLogits.fc": 0.001},
    }.get(name, {})
    for path, start in normal.items():  # in place of SciPy's slow truncated normal
        for block in theirs.get_submodule(path).modules():
            if isinstance(block, torch.nn.Conv2d | torch.nn.Linear):
                torch.nn.init.normal_(block.weight, std=start)
    assert_same_distributions(state, theirs)


# Shared blocks
# -----------------------------------------------------------------------------


def test_widths_are_rounded_as_torchvisions():
    from torchvision.models._utils import _make_divisible

    for divisor in (1, 8, 12):
        assert [make_divisible(w / 7, divisor) for w in range(1, 3000)] == [
            _make_divisible(w / 7, divisor) for w in range(1, 3000)
        ]
