"""A class of PyTorch becomes the same network on every backend."""

import importlib.util
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from deliralike import port
from deliralike.cli.app import app
from deliralike.errors import SettingError

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from tests.port import networks  # noqa: E402
from tests.port.proving import diverges, line_of, proved  # noqa: E402


def image(*shape):
    return (np.random.default_rng(0).standard_normal(shape).astype(np.float32),)


def tokens(*shape):
    return (np.random.default_rng(0).integers(0, 11, shape),)


CASES = {
    "residual": (networks.Residual, image(3, 3, 9, 9), {"classes": 5}),
    "made by a function": (networks.make_residual, image(3, 3, 9, 9), {}),
    "shifted": (networks.Shifted, image(2, 4, 6, 6), {}),
    "started": (networks.Started, image(3, 4), {}),
    "chosen": (networks.Chosen, image(3, 4), {"activation": "gelu"}),
    "patches": (networks.Patches, image(2, 3, 6, 4), {}),
    "habits": (networks.Habits, image(3, 5) * 2, {}),
    "depth": (networks.Depth, image(5, 3, 4, 4), {}),
    "states": (networks.States, tokens(2, 5), {}),
    "tables": (networks.Tables, image(2, 6, 4), {}),
    "recursive": (networks.Recursive, image(2, 3, 4, 4), {}),
    "keeping": (networks.Keeping, image(2, 3, 4), {}),
    "late": (networks.Late, image(3, 5), {}),
    "pretrained": (networks.Pretrained, tokens(3, 9), {}),
    "moded": (networks.Moded, image(3, 3, 7, 9), {}),
    "rated": (networks.Rated, image(5, 3, 4, 6), {}),
    "overwriting": (networks.Overwriting, image(3, 5), {}),
    "gated": (
        networks.Gated,
        image(3, 4),
        {"gate": partial(networks.Gate, act=torch.nn.Tanh)},
    ),
}


def ported(name):
    network, inputs, arguments = CASES[name]
    torch.manual_seed(0)
    return port(network, inputs, **arguments)


@pytest.mark.parametrize("name", CASES)
def test_it_is_proved_on_chainer_without_a_touch_and_the_names_of_weights_stay(name):
    found = ported(name)
    assert found.hands == []
    proved(found, "chainer")
    wanted = dict(found.reference.state_dict())
    state = found.network("torch").state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: tuple(value.shape) for name, value in wanted.items()
    }


@pytest.mark.parametrize("name", ["residual", "patches", "moded"])
def test_it_is_proved_on_jax(name):
    proved(ported(name), "jax")


def test_rates_that_blocks_are_given_are_proved_on_torch():
    proved(ported("rated"), "torch")


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_network_that_exists_gives_its_weights(backend):
    network, x = networks.Masked(7, 3), image(3, 7)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = port(network, x)
    assert found.arguments == ((), {"width": 7, "hidden": 3})
    proved(found, backend)
    state = found.network(backend).neutral_state()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
        np.testing.assert_array_equal(state[name], value.numpy(), err_msg=name)


def test_running_statistics_are_those_of_a_new_network():
    found = port(networks.Residual, image(3, 3, 9, 9), classes=5)
    state = found.network("torch").neutral_state()
    means = [value for name, value in state.items() if name.endswith("running_mean")]
    assert means and not any(value.any() for value in means)


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_arrays_of_numbers_are_compared_in_float64(backend):
    """``torch.tensor`` takes Python's floats in float32, outside of a proof."""
    found = port(networks.Sloped, image(2, 5))
    assert (
        "np.asarray([2 ** (-8 * (i + 1) / heads) for i in range(heads)])"
        in found.source
    )
    assert "np.asarray([2**i for i in range(heads)])" in found.source
    proved(found, backend)


def test_inputs_that_do_not_fit_are_one_message():
    message = r"Residual cannot be called .*\(3, 2, 9, 9\).*: RuntimeError"
    with pytest.raises(SettingError, match=message):
        port(networks.Residual, image(3, 2, 9, 9), classes=5)


def test_a_class_whose_module_is_not_imported_is_refused(tmp_path):
    file = tmp_path / "wave.py"  # which is also the name of a module of Python's
    file.write_text("from torch import nn\nclass Net(nn.Linear):\n    pass\n")
    spec = importlib.util.spec_from_file_location("wave", file)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    with pytest.raises(SettingError, match="Net cannot be found in the module 'wave'"):
        port(module.Net, image(2, 3), 3, 4)


def test_definitions_stand_in_the_order_of_the_original():
    source = ported("residual").source
    places = [source.index(f"class {name}") for name in ("Block", "Residual")]
    assert source.index("def conv3x3") < places[0] < places[1]
    assert '        norm_layer="BatchNorm2d",' in source
    tables = ported("chosen").source  # the second one is needed first
    assert tables.index("def ACTIVATIONS") < tables.index("def LAYERS")


def test_what_a_network_was_created_with_can_be_given():
    network = networks.Chosen("gelu", width=5)
    assert port(network, image(3, 4), "gelu", 5).arguments[1] == {
        "activation": "gelu",
        "width": 5,
    }
    with pytest.raises(
        SettingError, match=r"with these arguments is not the one .*'fc.weight'"
    ):
        port(network, image(3, 4), "gelu")


def test_what_a_network_was_created_with_is_asked_for_where_nothing_tells():
    network = networks.Residual(classes=5, size="large")
    with pytest.raises(
        SettingError, match=r"say it, port\(network, inputs, classes=..., size"
    ):
        port(network, image(3, 3, 9, 9))


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_inputs_are_given_by_name(backend):
    inputs = {"x": image(3, 7, 5)[0], "mask": np.float32([[0, 1, 1, 0, 1, 1, 1]] * 3)}
    found = port(networks.Masked, inputs)
    proved(found, backend)
    assert "* nn.unsqueeze(mask, -1)" in found.source


def test_networks_among_the_arguments_are_ported():
    head = torch.nn.Sequential(torch.nn.Linear(2, 6, bias=False), torch.nn.ReLU())
    network = networks.Handed(networks.Masked(5, 3), head)
    proved(port(network, image(3, 7, 5)), "chainer")


def test_the_source_is_what_a_person_would_have_written():
    source = ported("residual").source
    assert "import torch" not in source and "inplace" not in source
    assert "    # the shortcut" not in source and "  # the shortcut" in source
    assert '"""A convolution that keeps the size, or halves it."""' in source
    assert "out = out + self.short(x)" in source
    assert "def conv3x3(nn, inputs, outputs, stride=1):" in source
    assert "never_called" not in source and "kaiming" not in source


def test_elements_that_are_written_to_are_replaced_in_a_copy():
    source = ported("shifted").source
    assert "mask = nn.set_at(mask, np.s_[: size - 1], 1)" in source
    assert "mask = nn.set_at(mask, np.s_[size - 1 :, -size:], 2)" in source


def test_what_needs_a_hand_is_named_by_its_line():
    found = port(networks.NotPortable, image(3, 4))
    text = "\n".join(map(str, found.hands))
    for words in (
        "x.sum().item()",
        "torch.bernoulli(",
        "nnf.dropout(self.fc(x), 0.5)",
    ):
        assert f"networks.py:{line_of(networks.__file__, words)}: " in text


def test_start_values_are_those_of_the_original():
    found = ported("started")
    state = found.module.Started.on("torch", dtype="float64")().neutral_state()
    for name, wanted in found.reference.state_dict().items():
        np.testing.assert_allclose(state[name], wanted.numpy(), atol=1e-6, err_msg=name)


def test_what_a_proof_would_not_see_needs_a_hand():
    found = port(networks.Frozen, image(3, 4))
    said = " ".join(map(str, found.hands))
    assert (
        'self.set_trainable("scale", False)' in found.source and "not saved" not in said
    )
    assert "uniform_: give a distribution" in said


def test_a_name_without_a_counterpart_is_named_by_its_line():
    found = port(networks.Unknown, image(3, 4))
    number = line_of(networks.__file__, "torch.float16")
    assert any(f"networks.py:{number}: " in str(remark) for remark in found.hands), (
        found.hands
    )


def test_the_command_writes_proves_and_says_what_it_did(tmp_path):
    out = tmp_path / "residual.py"
    words = [
        "port",
        f"{networks.__file__}:Residual",
        "--input",
        "3x9x9",
        "--set",
        "classes=5",
    ]
    ended = CliRunner().invoke(
        app, [*words, "--backends", "chainer", "--out", str(out)]
    )
    assert ended.exit_code == 0, ended.output
    assert "chainer: PROVED" in ended.output and "conv3x3" in ended.output
    assert "class Residual(Network):" in out.read_text()


def test_the_command_ends_with_2_where_something_needs_a_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["port", f"{networks.__file__}:NotPortable", "--input", "4", "--check"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2 and "Needs a hand:" in ended.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_inputs_by_name(tmp_path):
    out = tmp_path / "masked.py"
    words = [
        "port",
        f"{networks.__file__}:Masked",
        "--backends",
        "torch",
        "--out",
        str(out),
    ]
    ended = CliRunner().invoke(app, [*words, "--input", "x=7x5", "--input", "mask=7"])
    assert ended.exit_code == 0, ended.output
    assert (
        "torch: PROVED" in ended.output and "nn.unsqueeze(mask, -1)" in out.read_text()
    )
    ended = CliRunner().invoke(app, [*words, "--input", "7x5", "--input", "mask=7"])
    assert "name all of them, or none" in ended.stderr


def test_a_port_with_a_mistake_diverges():
    found = ported("residual")
    assert "stride=stride, padding=1" in found.source
    found.source = found.source.replace("eps=1e-3", "eps=1e-5")
    assert diverges(found, "chainer")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (torch.nn.Linear(3, 4), "Linear is PyTorch's own: self.nn.Linear"),
        (np.ones(3), "ndarray is no network of PyTorch"),
        (torch.nn.Linear, "Linear is PyTorch's own: self.nn.Linear"),
        (lambda **_: 3, "int is no network of PyTorch"),
        (
            networks.Depth,
            "Depth cannot create a network .*: TypeError: .*unexpected keyword argument",
        ),
    ],
)
def test_what_cannot_be_ported_is_refused(network, message):
    arguments = {"in_features": 3, "out_features": 4}
    with pytest.raises(SettingError, match=message):
        port(network, image(2, 3), **arguments)
