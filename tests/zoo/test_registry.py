"""Architectures are found by name, described, listed, registered and built."""

import subprocess
import sys

import numpy as np
import pytest

from deliralike import Network, zoo
from deliralike.errors import (
    ArgumentError,
    BackendUnavailable,
    SettingError,
    UnknownName,
)
from deliralike.zoo.registry import parameters_of
from deliralike.zoo.summary import count_parameters


class OwnNetwork(Network):
    def __init__(self, width, classes=3):
        super().__init__()
        self.fc = self.nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(x)


def test_neither_importing_the_zoo_nor_an_outline_loads_a_framework():
    code = (
        "import sys; from deliralike import zoo; "
        "loaded = lambda: [m for m in ('torch', 'chainer', 'jax', 'flax') if m in sys.modules]; "
        "print(loaded()); zoo.outline('resnet18'); print(loaded())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[]", "[]"]


def test_a_misspelt_name_gets_the_nearest_ones():
    with pytest.raises(
        UnknownName, match="no 'resnet81'. Did you mean 'resnet8' or 'resnet18'"
    ):
        zoo.build("resnet81", backend="torch")


def test_a_misspelt_setting_gets_the_nearest_one():
    with pytest.raises(
        ArgumentError,
        match="resnet18 has no setting 'num_clases'. Did you mean 'num_classes'",
    ):
        zoo.build("resnet18", backend="torch", num_clases=3)


def test_every_architecture_takes_the_number_of_outputs_by_the_same_word(subtests):
    for name in zoo.list():
        architecture = zoo.find(name)
        if architecture.outputs is None:
            continue
        with subtests.test(name):
            assert architecture.arguments(num_classes=7)[architecture.outputs] == 7


def test_only_networks_without_classes_have_no_number_of_outputs():
    without = {
        zoo.find(name).task for name in zoo.list() if zoo.find(name).outputs is None
    }
    assert without.isdisjoint({"classification", "segmentation", "generation"})
    with pytest.raises(
        ArgumentError, match="samvit_base_patch16 has no setting 'num_classes', nor"
    ):
        zoo.outline("samvit_base_patch16", num_classes=3)


# name: what the reference implementation calls the number of outputs
REFERENCE_WORDS = {
    "resnet18": "num_classes",
    "encoder_unet": "classes",
    "unet": "out_channels",
    "nnunet": "num_classes",
    "bert_tiny": "num_labels",
    "mlp": "out_features",
    "gpt_mini": "vocab_size",
}


@pytest.mark.parametrize(("name", "word"), REFERENCE_WORDS.items())
def test_the_references_word_for_the_number_of_outputs_is_taken_as_well(name, word):
    by_our_word = count_parameters(name, num_classes=2)
    assert count_parameters(name, **{word: 2}) == by_our_word
    assert count_parameters(name, **{word: 3}) > by_our_word


@pytest.mark.parametrize(
    ("name", "words"),
    [("unet", ("out_channels", "num_classes")), ("fpn", ("classes", "num_classes"))],
)
def test_two_words_for_the_number_of_outputs_are_refused(name, words):
    settings = dict.fromkeys(words, 3)
    message = (
        f"{name}: the number of outputs came twice, as '{words[0]}' and as '{words[1]}'"
    )
    with pytest.raises(ArgumentError, match=message):
        zoo.build(name, backend="torch", **settings)
    with pytest.raises(ArgumentError, match=message):
        zoo.outline(name, **settings)


def test_a_word_that_is_a_setting_of_its_own_keeps_its_meaning():
    def network(out_channels, num_classes=2): ...

    architecture = zoo.Architecture("own", network)
    settings = {"out_channels": 8, "num_classes": 3}
    assert architecture.rename_settings(settings) == settings
    assert architecture.outputs == "num_classes"


def test_a_misspelt_backend_is_refused_before_anything_is_built():
    with pytest.raises(BackendUnavailable, match="torhc"):
        zoo.find("resnet18").on("torhc")


def distinct():
    """One architecture of each network."""
    networks = {zoo.find(name).network: name for name in zoo.list()}
    return [zoo.find(name) for name in networks.values()]


def test_the_settings_of_every_architecture_are_of_the_types_that_it_states():
    for architecture in distinct():
        settings = dict(architecture.settings)
        assert architecture.arguments(**settings) == settings


@pytest.mark.parametrize("of", [int, float, bool])
@pytest.mark.parametrize("value", ["no", None, float("nan"), 2.5, [3]])
def test_a_setting_of_another_type_is_refused_by_every_architecture(of, value):
    """A text for a flag would be true: ``--set deep_supervision=no``."""
    if of is float and value == 2.5:
        return
    count = 0
    for architecture in distinct():
        for name, default in architecture.settings.items():
            stated = parameters_of(architecture.network).get(name)
            states = stated is not None and stated.annotation in (of, of.__name__)
            if type(default) is of and states:
                count += 1
                with pytest.raises(SettingError, match=f": {name}=.* must be "):
                    architecture.arguments(**{name: value})
    assert count > 20


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"in_channels": np.int64(1)}, 1),
        ({"zero_init_residual": 1}, 1),
        ({"zero_init_residual": np.True_}, True),
        ({"layers": np.array([1, 1, 1, 1])}, None),
    ],
)
def test_numbers_of_numpy_are_taken(settings, wanted):
    assert zoo.find("mlp").arguments(dropout=np.float32(0.5))["dropout"] == 0.5
    arguments = zoo.find("resnet18").arguments(**settings)
    ((name, value),) = settings.items()
    assert arguments[name] is value and (wanted is None or value == wanted)


@pytest.mark.parametrize("dims", [0, 4])
def test_another_number_of_axes_is_refused_by_every_architecture(dims):
    having = [each for each in distinct() if "dims" in each.settings]
    assert len(having) > 10
    for architecture in having:
        with pytest.raises(SettingError, match=f"dims={dims}; wanted "):
            architecture.arguments(dims=dims)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("mobilenet_v2", "width_mult"), ("resnet18", "num_classes"), ("mlp", "dropout")],
)
def test_a_number_below_zero_is_refused_by_every_architecture(name, setting):
    wanted = f"{name}: .*=-1.0 must be at least 0; left out it is"
    with pytest.raises(SettingError, match=wanted):
        zoo.find(name).arguments(**{setting: -1.0})
    assert zoo.find(name).arguments(**{setting: 0})[setting] == 0


def test_settings_hold_the_variant_and_the_defaults():
    settings = zoo.find("resnext50_32x4d").settings
    assert (
        settings["groups"],
        settings["width_per_group"],
        settings["num_classes"],
    ) == (
        32,
        4,
        1000,
    )


def test_list_takes_a_task_and_a_number_of_axes():
    found = zoo.list(task="segmentation", dims=3)
    assert "unet" in found
    assert all(
        zoo.find(name).task == "segmentation" and 3 in zoo.find(name).dims
        for name in found
    )
    assert zoo.list("resnet*", task="segmentation", dims=3) == ()
    assert "lenet" not in zoo.list(dims=3)


def test_list_names_the_tasks_that_there_are():
    with pytest.raises(UnknownName, match="Did you mean 'segmentation'"):
        zoo.list(task="segmentations")


def test_every_architecture_states_its_source_and_input(subtests):
    for name in zoo.list():
        architecture = zoo.find(name)
        with subtests.test(name):
            assert architecture.source
            assert architecture.dims
            inputs = architecture.inputs_for()
            assert all(size > 0 for entry in inputs for size in entry.shape)
            assert all(entry.below is None or entry.below > 1 for entry in inputs)
            if architecture.task in (
                "classification",
                "segmentation",
            ):  # of images, not of tokens or noise
                assert len(inputs[0].shape) - 1 in architecture.dims


def test_the_input_shape_follows_channels_and_axes():
    assert zoo.find("resnet18").inputs_for(in_channels=1, dims=1)[0].shape == (1, 224)


def test_an_own_class_is_found_by_its_name(restored_zoo):
    zoo.register(OwnNetwork, shape=(4,), dims=(0,))
    net = zoo.build("OwnNetwork", backend="torch", width=4)
    assert net.count_parameters() == 15
    assert net.init_kwargs == {"width": 4}


def test_a_function_is_found_by_its_name(restored_zoo):
    @zoo.register(shape=(1, 28, 28))
    def tiny_lenet(num_classes=2):
        return zoo.find("lenet").network(num_classes=num_classes)

    net = zoo.build("tiny_lenet", backend="torch", seed=3, dtype="float64")
    same = zoo.build("lenet", backend="torch", seed=3, dtype="float64", num_classes=2)
    np.testing.assert_array_equal(
        net.neutral_state()["fc3.weight"], same.neutral_state()["fc3.weight"]
    )
    assert zoo.outline("tiny_lenet", num_classes=4).output == (1, 4)


def test_a_missing_setting_is_named(restored_zoo):
    zoo.register(OwnNetwork, name="own")
    with pytest.raises(ArgumentError, match="missing a required argument: 'width'"):
        zoo.build("own", backend="torch")


def test_a_class_defined_anew_takes_its_own_place(restored_zoo):
    for classes in (2, 5):

        @zoo.register(name="again")
        class Again(OwnNetwork):
            def __init__(self, width=4, classes=classes):
                super().__init__(width, classes)

    assert zoo.outline("again", (4,)).output == (1, 5)


def test_the_name_of_another_network_is_refused(restored_zoo):
    with pytest.raises(
        SettingError,
        match=r"the zoo has 'resnet18' already, deliralike.zoo.*resnet.ResNet",
    ):
        zoo.register(OwnNetwork, name="resnet18")
    assert zoo.find("resnet18").network is not OwnNetwork


def test_a_variant_with_an_unknown_setting_is_refused(restored_zoo):
    with pytest.raises(
        ArgumentError, match="own has no setting 'widht'. Did you mean 'width'"
    ):
        zoo.register(OwnNetwork, name="own", variant={"widht": 3})
    assert "own" not in zoo.list()


def test_an_unknown_entry_of_the_description_is_refused(restored_zoo):
    with pytest.raises(ArgumentError, match="no entry 'taks'. Did you mean 'task'"):
        zoo.register(OwnNetwork, taks="x")
