"""Drawings: boxes and arrows are those of the real network, and all of them are on the picture."""

import pytest

from deliralike import Network, zoo
from deliralike.errors import SettingError
from deliralike.zoo.drawing import draw
from deliralike.zoo.flow import columns, flow


class Branches(Network):
    """Two branches from one layer, joined and added to; one block is used twice."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.first, self.left, self.right = (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.Conv2d(4, 4, 1),
            nn.Conv2d(4, 2, 1),
        )
        self.stack = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU())
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x, y):
        x = self.first(x)
        joined = self.nn.concatenate([self.left(x)[:, :], self.right(x * 2.0)], dim=1)
        return {"sum": self.stack(self.last(joined)) + y, "left": self.left(x)}


def test_boxes_take_their_inputs_from_where_the_data_come_from():
    boxes = flow(Branches, [(1, 8, 6), (4, 8, 6)], depth=1, idle=True)
    assert [(box.name, box.sources) for box in boxes] == [
        ("", ()),
        ("", ()),
        ("first", (0,)),
        ("left", (2,)),
        ("right", (2,)),
        ("last", (3, 4)),
        ("stack", (5,)),
        ("left", (2,)),
    ]
    assert columns(boxes) == [0, 0, 1, 2, 2, 3, 4, 2]


def test_what_has_no_parameters_and_keeps_the_shape_is_left_out_on_request():
    boxes = flow(Branches, [(1, 8, 6), (4, 8, 6)], depth=1)
    assert [(box.name, box.sources) for box in boxes[-2:]] == [
        ("last", (3, 4)),
        ("left", (2,)),
    ]
    names = [box.name for box in flow("lenet", depth=1)]
    assert names == ["", "conv1", "pool", "conv2", "pool", "fc1", "fc2", "fc3"]


def test_equal_blocks_whose_output_is_used_elsewhere_stay_apart():
    class Dense(Network):
        def __init__(self):
            super().__init__()
            self.a, self.b = self.nn.Linear(3, 3), self.nn.Linear(3, 3)

        def forward(self, x):
            x = self.a(x)
            return (
                x + self.b(x) if False else self.nn.concatenate([self.b(x), x], dim=1)
            )

    class Outer(Network):
        def __init__(self):
            super().__init__()
            self.dense, self.last = Dense(), self.nn.Linear(6, 2)

        def forward(self, x):
            return self.last(self.dense(x))

    boxes = flow(Outer, (3,), depth=2)
    assert [(box.name, box.count, box.sources) for box in boxes[1:]] == [
        ("dense.a", 1, (0,)),
        ("dense.b", 1, (1,)),
        ("last", 1, (1, 2)),
    ]


@pytest.mark.parametrize("name", ["resnet50", "unet", "lenet"])
def test_boxes_are_called_as_in_the_real_network_and_hold_all_its_parameters(name):
    """PyTorch's own hooks tell which blocks ran, in which order and with which shapes."""
    import torch

    net, seen = zoo.build(name, backend="torch").eval(), []
    for path, block in net.named_children():
        block.register_forward_hook(
            lambda _b, _i, output, path=path: seen.append((path, tuple(output.shape)))
        )
    net(torch.zeros(1, *zoo.find(name).input_shape))
    boxes = flow(name, depth=1, idle=True)
    assert [(box.name, box.output) for box in boxes if box.sources] == seen
    assert sum(box.parameters for box in boxes) == zoo.outline(name).parameters
    assert (
        sum(box.parameters for box in flow(name, depth=3))
        == zoo.outline(name).parameters
    )


#: Branches, joins at several levels, lists of outputs, several inputs, tokens, recurrent layers.
VARIED = {
    "alexnet",
    "attention_unet",
    "bert_tiny",
    "conv_vae",
    "ddpm_cifar10",
    "densenet121",
    "fcn_resnet50",
    "googlenet",
    "gpt_mini",
    "lstm_classifier",
    "lenet",
    "nnunet",
    "swin_unetr",
    "unetplusplus",
}


@pytest.mark.parametrize("name", sorted(VARIED))
def test_an_architecture_can_be_drawn(name):
    boxes = flow(name)
    figure = draw(name)
    axes = figure.axes[0]
    texts = [text.get_text() for text in axes.texts]
    first_lines = [text.partition("\n")[0] for text in texts]
    assert first_lines.count("input") == sum(not box.name for box in boxes)
    assert f"{zoo.outline(name).parameters:,} parameters" in texts[0]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for text in axes.texts:
        assert left <= text.get_position()[0] <= right
        assert low <= text.get_position()[1] <= high
    corners = [
        patch.get_extents().transformed(axes.transData.inverted())
        for patch in axes.patches
    ]
    assert all(
        left <= c.x0 and c.x1 <= right and low <= c.y0 and c.y1 <= high for c in corners
    )
    boxes_drawn = [
        c
        for c, patch in zip(corners, axes.patches, strict=True)
        if "Bbox" in type(patch).__name__
    ]
    assert len(boxes_drawn) == len(boxes)
    assert len({(round(c.x0, 3), round(c.y0, 3)) for c in boxes_drawn}) == len(boxes), (
        "two boxes in one place"
    )


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_drawing_is_written_and_the_same_each_time(tmp_path, suffix):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    draw("lenet", first)
    draw("lenet", second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size > 5_000


def test_another_format_or_depth_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"wanted a suffix of \.svg, \.png, \.pdf"):
        draw("lenet", tmp_path / "lenet.gif")
    with pytest.raises(SettingError, match="depth=0; wanted at least 1"):
        draw("lenet", depth=0)
    assert not list(tmp_path.iterdir())


def test_what_only_gives_a_mask_its_type_is_no_source_of_it():
    """The mask of the tokens to come is made once, in the embedding's type, and goes to each
    block."""
    boxes = {box.name: box for box in flow("gpt2", depth=2, idle=True, n_layer=2)}
    names = list(boxes)
    assert [names[i] for i in boxes["transformer.wpe"].sources] == []
    assert [names[i] for i in boxes["transformer.h.0"].sources] == ["transformer.drop"]
    assert boxes["transformer.h.0"].count == 2
