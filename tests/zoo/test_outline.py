"""Outlines tell what the real networks do."""

import numpy as np
import pytest

from deliralike import Network, backends, zoo
from deliralike.backends.outline import BACKEND, ShapeArray
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    DeliralikeError,
    SettingError,
    ShapeError,
)
from tests.nn.agreement import flat
from tests.nn.composed_calls import FUNCTIONS, SHAPE
from tests.nn.drawn_calls import SEED, TABLE, draw_calls
from tests.nn.drawn_runs import by_torch, filled, is_declared, leaves, reference

# label: (architecture, one sample's shape, settings)
SMALL = {
    "mlp": ("mlp", (784,), {"hidden": (5, 4)}),
    "lenet": ("lenet", (1, 21, 21), {"image_size": 21}),
    "resnet8": ("resnet8", (1, 9, 7), {}),
    "resnet20 B": ("resnet20", (3, 31, 33), {"shortcut": "B"}),
    "resnet18 1d": ("resnet18", (3, 77), {"dims": 1, "num_classes": 3}),
    "dilated": (
        "resnext50_32x4d",
        (3, 65, 49),
        {"layers": (1, 1, 1, 1), "replace_stride_with_dilation": (False, True, True)},
    ),
    "unet": ("unet", (1, 19, 23), {"features": (8, 8, 16, 8), "norm": "batch"}),
    "segresnet": (
        "segresnet",
        (1, 4, 6, 8),
        {"blocks_down": (1, 1), "blocks_up": (1,)},
    ),
}


def real(label):
    name, _, settings = SMALL[label]
    return zoo.build(name, backend="torch", **settings).eval()


def outlined(label):
    name, shape, settings = SMALL[label]
    return zoo.outline(name, shape, **settings)


@pytest.mark.parametrize("label", SMALL)
def test_every_layers_output_shape_is_that_of_the_real_network(label):
    import torch

    net, seen = real(label), {}
    for path, block in net.named_blocks():
        block.register_forward_hook(
            lambda _b, _i, output, path=path: seen.update({path: tuple(output.shape)})
        )
    net(torch.zeros(1, *SMALL[label][1]))
    outline = outlined(label)
    assert {row.name: row.output for row in outline.rows} == {
        row.name: seen[row.name] for row in outline.rows
    }
    assert outline.output == seen[""]


@pytest.mark.parametrize("label", SMALL)
def test_multiply_adds_are_half_of_what_pytorch_counts_as_operations(label):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    net = real(label)
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(1, *SMALL[label][1]))
    assert outlined(label).multiply_adds * 2 == counter.get_total_flops()


def test_a_layer_that_is_called_twice_is_one_row_with_both_counts():
    class Twice(Network):
        def __init__(self):
            super().__init__()
            self.fc = self.nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(self.fc(x))

    (row,) = zoo.outline(Twice, (4,)).rows
    assert (row.name, row.parameters, row.multiply_adds) == ("fc", 20, 32)


def test_several_inputs_and_outputs_have_their_shapes():
    class Two(Network):
        def forward(self, x, y):
            return {"sum": x + y, "both": (x, y)}

    outline = zoo.outline(Two, [(3, 1), (1, 4)])
    assert outline.output == {"sum": (1, 3, 4), "both": ((1, 3, 1), (1, 1, 4))}


def test_a_class_needs_the_shape_of_its_input():
    with pytest.raises(
        ArgumentError, match="LeNet does not state the shape of its input"
    ):
        zoo.outline(zoo.find("lenet").network)


def test_the_table_names_layers_shapes_and_totals():
    text = str(zoo.outline("lenet"))
    assert text.splitlines()[0].startswith(
        "lenet: input (1, 1, 28, 28), output (1, 10), 61,706 parameters"
    )
    assert [line.split()[0] for line in text.splitlines()[2:]] == [
        "layer",
        "conv1",
        "activation",
        "pool",
        "conv2",
        "fc1",
        "fc2",
        "fc3",
    ]


def test_no_outline_has_values():
    with pytest.raises(CapabilityError, match="build the network on another backend"):
        zoo.find("mlp").on(BACKEND)().neutral_state()


X, Y = SHAPE, (2, 3, 7, 4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_the_shape_and_type_that_it_gives_on_pytorch(name):
    torch = backends.get("torch")
    x = torch.array(np.random.default_rng(0).random(X, np.float32))
    expected = FUNCTIONS[name](torch.nn, x)
    found = FUNCTIONS[name](BACKEND.nn, ShapeArray(X))
    assert found.shape == tuple(expected.shape)
    assert found.dtype == str(expected.dtype).removeprefix("torch.")


#: A weight without an axis of outputs, and a number of classes that values decide.
REFUSED = ("linear", "one_hot")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TABLE)
def test_drawn_calls_give_the_shapes_and_types_that_pytorch_gives(name):
    for args, kwargs in draw_calls(name, 5, SEED):
        if name == "sum" and args[0].dtype == bool:
            continue  # whole numbers elsewhere
        wanted = by_torch(reference(name), args, kwargs)
        arrays = [ShapeArray(x.shape, str(x.dtype)) for x in leaves((args, kwargs))]
        outlined_args, outlined_kwargs = filled((args, kwargs), iter(arrays))
        try:
            found = getattr(BACKEND.nn, name)(*outlined_args, **outlined_kwargs)
        except DeliralikeError as error:
            is_known = name in REFUSED or is_declared(args, kwargs, error)
            assert wanted.error or is_known, error
            continue
        if wanted.error is None:
            assert [(each.shape, each.dtype) for each in flat(found)] == [
                (each.shape, str(each.dtype)) for each in wanted.outputs
            ]


EINSUMS = {
    "ij,jk": [(2, 3), (3, 4)],
    "ba": [(2, 3)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "...ij,...jk": [(5, 1, 2, 3), (7, 3, 4)],
    "b...,b...->...b": [(2, 3, 4), (2, 3, 4)],
    "Ab , bC -> AC": [(2, 3), (3, 4)],
    "bhwc,hkc->bhwk": [(2, 3, 4, 5), (3, 6, 5)],
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_an_einsum_has_the_shape_that_numpy_gives(equation):
    shapes = EINSUMS[equation]
    found = BACKEND.nn.einsum(equation, *map(ShapeArray, shapes))
    assert found.shape == np.einsum(equation, *map(np.ones, shapes)).shape


WRONG = {
    "sum": lambda nn, x, y: x + y,
    "product": lambda nn, x, y: nn.matmul(x, x),
    "concatenation": lambda nn, x, y: nn.concatenate([x, y], dim=1),
    "reshape": lambda nn, x, y: nn.reshape(x, (4, -1)),
}


def test_shapes_that_do_not_fit_are_refused(subtests):
    for name, function in WRONG.items():
        with subtests.test(name), pytest.raises(ShapeError, match=r"\(2, 3, 5, 7\)"):
            function(BACKEND.nn, ShapeArray(X), ShapeArray(Y))


# Inputs that are no images
# -----------------------------------------------------------------------------


class Joined(Network):
    """Reads an image, a number for it, and a number between 0 and 4."""

    def __init__(self, width=3):
        super().__init__()
        self.table = self.nn.Embedding(5, width)

    def forward(self, image, vector, index):
        return {"sum": self.nn.mean(image) + vector, "row": self.table(index)}


JOINED = zoo.Architecture(
    "joined",
    Joined,
    shape=lambda settings: [(1, 8, 8), (settings["width"],), zoo.Input((), below=5)],
)


def test_inputs_that_are_not_given_are_the_architectures_own():
    outline = zoo.outline(JOINED, [(1, 4, 6), (2,)])
    assert outline.inputs == ((1, 1, 4, 6), (1, 2), (1,))
    assert outline.output == {"sum": (1, 2), "row": (1, 3)}


def test_inputs_may_come_with_a_range_of_their_own():
    assert zoo.outline(JOINED, [(1, 4, 6), (2,), zoo.Input((7,), below=2)]).output[
        "row"
    ] == (
        1,
        7,
        3,
    )
    with pytest.raises(SettingError, match="wanted whole numbers"):
        zoo.outline(Joined, [(1, 4, 6), (2,), (7,)])


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("gpt_mini", 192),
        ("bert_tiny", 128),
        ("transformer_classifier", 512),
        ("lstm_classifier", 256),
    ],
)
def test_stages_of_networks_over_tokens_have_their_channels_last(name, channels):
    last = list(zoo.stages(name, (9,)).values())[-1]
    assert (last.channels, last.shape, last.reduction) == (channels, (9, channels), ())
