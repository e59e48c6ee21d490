"""Features at named stages, in losses as well, and new heads on old weights: on every backend."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, backends, nest, zoo
from deliralike.errors import CapabilityError, SettingError, StateError, UnknownName
from tests.compiled import compilations
from tests.zoo.cases import CASES
from tests.zoo.programs import as_one_program

SMALL = {"layers": (1, 1, 1, 1), "num_classes": 4}


def build(backend, name="resnet18", dtype="float64", **settings):
    return zoo.build(name, backend=backend.name, dtype=dtype, **(settings or SMALL))


def sample(shape=(2, 3, 33, 35), seed=5):
    return np.random.default_rng(seed).standard_normal(shape)


# Features
# -----------------------------------------------------------------------------


def test_features_are_those_of_the_wanted_stages_in_that_order(backend):
    net, names = build(backend).eval(), []

    def features(net, x):
        found = [
            zoo.features(net, x),
            zoo.features(net, x, stages=("layer2", "stem")),
            zoo.features(net, x, stages="layer1"),
        ]
        names.extend(
            list(stages) for stages in found
        )  # a program of JAX would give them in the order of the alphabet
        return [list(stages.values()) for stages in found]

    with backend.evaluating():
        arrays = as_one_program(backend, features)(
            net, backend.array(sample(), dtype="float64")
        )
    assert names == [
        ["stem", "layer1", "layer2", "layer3", "layer4"],
        ["layer2", "stem"],
        ["layer1"],
    ]
    whole, some, one = (
        dict(zip(*pair, strict=True)) for pair in zip(names, arrays, strict=True)
    )
    for name, array in {**some, **one}.items():
        assert_array_equal(backend.numpy(array), backend.numpy(whole[name]))


def test_features_are_what_the_layers_put_out():
    """PyTorch's own hooks see the same arrays."""
    net, seen = build(backends.get("torch")).eval(), {}
    for name in ("relu", "layer1", "layer3"):
        getattr(net, name).register_forward_hook(
            lambda _b, _i, output, name=name: seen.setdefault(name, output)
        )
    found = zoo.features(
        net, torch.from_numpy(sample()), stages=["stem", "layer1", "layer3"]
    )
    assert all(
        found[stage] is seen[name]
        for stage, name in {"stem": "relu", "layer1": "layer1"}.items()
    )
    assert found["layer3"] is seen["layer3"]


def test_features_are_compiled_once_on_jax_and_follow_the_network():
    net, twin = (build(backends.get(name)).eval() for name in ("jax", "torch"))
    x = sample()
    for round, programs in enumerate((1, 0, 0)):
        inputs = net.backend.array(x + round, dtype="float64")
        with compilations() as compiled:
            found = zoo.features(net, inputs, stages=["layer2", "stem"])
        assert len(compiled) == programs
        wanted = zoo.features(
            twin, torch.from_numpy(x + round), stages=["layer2", "stem"]
        )
        assert list(found) == list(wanted)
        for name, array in wanted.items():
            assert_allclose(found[name], array.detach(), rtol=0, atol=1e-12)
        state = {name: 0.9 * value for name, value in net.neutral_state().items()}
        net.load_neutral_state(state)
        twin.load_neutral_state(state)


def test_an_unknown_stage_is_told_the_nearest(backend):
    features = as_one_program(
        backend, lambda net, x: zoo.features(net, x, stages=["layer1", "layer5"])
    )
    with pytest.raises(
        UnknownName, match=r"ResNet has no stage 'layer5'\. Did you mean 'layer4' or"
    ):
        features(build(backend).eval(), backend.array(sample(), dtype="float64"))


class Plain(Network):
    """A network of somebody who states neither stages nor head."""

    def __init__(self, num_classes=2):
        super().__init__()
        self.fc = self.nn.Linear(3, num_classes)

    def forward(self, x):
        return self.fc(x)


class Own(zoo.Model):
    """A model of somebody's own, in two stages, that shares its first layer's weight if told so."""

    stem_paths, head_paths = ("first",), ("last",)

    def __init__(self, num_classes=3, tied=False, inner=None):
        super().__init__()
        self.first, self.last = self.nn.Linear(3, 3), self.nn.Linear(3, num_classes)
        if tied:
            self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.forward_stages(x)["second"])

    def forward_stages(self, x):
        first = self.first(x)
        return {"first": first, "second": self.nn.relu(first)}


class Stageless(zoo.Model):
    """A model that states no stages."""


def test_a_network_without_stages_is_refused_by_name(backend):
    with pytest.raises(
        CapabilityError,
        match=r"Plain names no stages: derive it from deliralike\.zoo\.Model",
    ):
        zoo.features(Plain.on(backend)(), backend.array(sample((2, 3))))
    with pytest.raises(CapabilityError, match="Linear names no stages"):
        zoo.features(torch.nn.Linear(3, 2), torch.zeros(1, 3))
    with pytest.raises(CapabilityError, match="Stageless names no stages"):
        zoo.features(Stageless.on(backend)(), backend.array(sample((2, 3))))
    with pytest.raises(CapabilityError, match="Plain has no forward_stages"):
        zoo.stages(Plain, (3,))


# A new head
# -----------------------------------------------------------------------------

TIED = {
    "mamba2_130m": "backbone.embeddings.weight",
    "whisper_tiny": "model.decoder.embed_tokens.weight",
    "gpt2": "transformer.wte.weight",
    "gpt_mini masked": "transformer.wte.weight",
    "llama_3_2_1b": "model.embed_tokens.weight",
    "gemma_3_270m": "model.embed_tokens.weight",
    "t5_small": "shared.weight",
}
# the number of outputs is that of the inputs as well
WIDER = ("vae", "conv_vae", "qwen2_5_0_5b", "qwen3_0_6b", "flan_t5_small")
WIDER += ("mamba2_130m masked",)
NONE = (
    "bert_base_uncased",
    "clip_vit_b_32",
    "samvit_base_patch16",
    "sam2_hiera_tiny",
)
FIRST = (
    "autoencoder_kl",
    "autoencoder_kl in 3d",
)  # its other outputs do not depend on the head


def one_of_each_class():
    """The first case of each class of network whose head is by itself."""
    first = {}
    for label, case in CASES.items():
        if label not in (*TIED, *WIDER, *NONE):
            first.setdefault(zoo.find(case.name).network, label)
    return first.values()


@pytest.mark.parametrize("label", one_of_each_class())
def test_every_model_takes_a_new_head_and_keeps_the_rest(label):
    case = CASES[label]
    net = case.build("torch").eval()
    count = net.init_kwargs.get(net.outputs, zoo.find(case.name).settings[net.outputs])
    new = zoo.reset_head(net, count + 1)
    slots, old_slots = new.neutral_slots(), net.neutral_slots()
    changed = {
        name
        for name, slot in slots.items()
        if name not in old_slots or slot.shape != old_slots[name].shape
    }
    heads = {id(new.get_submodule(path)) for path in new.head_paths}
    below = {
        name
        for path, block in new.named_modules(remove_duplicate=False)
        if id(block) in heads
        for name in slots
        if name.startswith(f"{path}.")
    }
    assert changed
    assert changed <= below
    for name in set(slots) - below:
        assert_array_equal(slots[name].read(), old_slots[name].read())
    inputs = [torch.from_numpy(x) for x in case.inputs()]
    outputs = list(
        zip(nest.leaves(new(*inputs)), nest.leaves(net(*inputs)), strict=True)
    )
    for came, before in outputs[:1] if label in FIRST else outputs:
        if count:
            assert came.shape == (before.shape[0], count + 1, *before.shape[2:])
        else:  # with one output a critic leaves that axis out
            assert came.shape in ((before.shape[0], 1), before.shape[:1])


@pytest.mark.parametrize("label", [*TIED, *WIDER, *NONE])
def test_models_whose_head_is_not_by_itself_say_so(label):
    wanted = {
        **{
            name: (CapabilityError, f"is tied to '{table}'")
            for name, table in TIED.items()
        },
        **dict.fromkeys(
            WIDER, (StateError, "more than the head of .* depends on (in|vocab)_")
        ),
        **dict.fromkeys(NONE, (CapabilityError, "no setting 'num_classes'")),
    }
    error, message = wanted[label]
    with pytest.raises(error, match=message):
        zoo.reset_head(CASES[label].build("torch"), 7)


@pytest.mark.parametrize("label", ["resnet8", "fcn_resnet50"])
def test_a_new_head_starts_from_its_seed_and_the_rest_stays(label, backend):
    case = CASES[label]
    net = case.build(backend.name, seed=1)
    new, same, other = (zoo.reset_head(net, 5, seed=seed) for seed in (3, 3, 4))
    assert new.backend is net.backend
    assert (new.dtype_name, new.device_name) == (net.dtype_name, net.device_name)
    fresh = zoo.build(
        case.name,
        backend=backend.name,
        dtype="float64",
        seed=3,
        **{**case.settings, net.outputs: 5},
    ).neutral_state()
    states = [network.neutral_state() for network in (net, new, same, other)]
    for name, value in states[1].items():
        if name.startswith(tuple(f"{path}." for path in new.head_paths)):
            assert_array_equal(value, fresh[name])
            assert_array_equal(value, states[2][name])
            assert value.ndim == 1 or not np.array_equal(value, states[3][name])
        else:
            assert_array_equal(value, states[0][name])


def test_mode_and_frozen_parameters_are_carried_over_apart_from_the_head(backend):
    net = build(backend)
    net.set_trainable("*", False)
    net.set_trainable("layer4.*", True)
    net.train()
    net.layer1.eval()
    new = zoo.reset_head(net, 4)
    trainable = {
        name
        for name, slot in new.neutral_slots().items()
        if slot.is_parameter and slot.trainable
    }
    assert trainable == {
        name
        for name, slot in net.neutral_slots().items()
        if name.startswith(("layer4.", "fc.")) and slot.is_parameter
    }
    modes = {
        path: block.training
        for path, block in new.named_blocks()
        if hasattr(block, "training")
    }
    assert modes == {
        path: block.training
        for path, block in net.named_blocks()
        if hasattr(block, "training")
    }
    assert not modes["layer1.0.conv1"]
    assert modes["layer2"]


def test_heads_that_cannot_be_replaced_are_refused(backend):
    with pytest.raises(
        CapabilityError,
        match=r"Plain does not state its head: derive it from deliralike\.zoo\.Model",
    ):
        zoo.reset_head(Plain.on(backend)(), 3)
    with pytest.raises(
        CapabilityError, match="the head's 'last.weight' is tied to 'first.weight'"
    ):
        zoo.reset_head(Own.on(backend)(tied=True), 3)
    with pytest.raises(
        CapabilityError, match=r"Own was made from other networks \(inner=…\)"
    ):
        zoo.reset_head(Own.on(backend)(inner=Plain.on(backend)()), 5)
    with pytest.raises(CapabilityError, match="Stageless has no setting 'num_classes'"):
        zoo.reset_head(Stageless.on(backend)(), 5)
    with pytest.raises(SettingError, match="num_classes"):
        zoo.reset_head(build(backend), -1)


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "sam2_hiera_tiny"])
def test_nothing_runs_after_the_last_wanted_stage(name):
    net, ran = (
        build(backends.get("torch"), **CASES[name].settings, name=name).eval(),
        [],
    )
    for path, block in net.named_modules():
        block.register_forward_hook(lambda _b, _i, _o, path=path: ran.append(path))
    x, stages = (
        torch.from_numpy(CASES[name].inputs()[0]),
        list(zoo.stages(name, **CASES[name].settings)),
    )
    zoo.features(net, x, stages=stages[:2])
    few, ran[:] = len(ran), []
    zoo.features(net, x)
    assert 0 < few < len(ran)
