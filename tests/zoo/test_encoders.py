"""Any classifier of the zoo as an encoder: what the decoders take, published counts, quirks, bad
input."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torchvision.models import resnet
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
from torchvision.models.segmentation.fcn import FCN, FCNHead

from deliralike import Network, zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.errors import ArgumentError, SettingError, ShapeError, UnknownName
from deliralike.zoo.encoders import Encoder
from tests.zoo.case import (
    arrays_of,
    assert_same_distributions,
    close,
    drawn,
    evaluate,
    on_torch,
    scramble,
)
from tests.zoo.cases.encoders import (
    DECODERS,
    NARROW,
    SHORT,
    SHORT_BOTTLENECK,
    smp,
    without_dropout,
)

# Encoders of every family
# -----------------------------------------------------------------------------

PYRAMIDS = {
    "resnet50": (64, 256, 512, 1024, 2048),
    "vgg16_bn": (128, 256, 512, 512, 512),
    "densenet121": (64, 256, 512, 1024, 1024),
    "densenet161": (96, 384, 768, 2112, 2208),
    "mobilenet_v2": (16, 24, 32, 96, 1280),
}


def test_the_taps_are_the_references_and_its_state_is_ours(subtests):
    """At full size: the channels that the reference lists, and the names and shapes of a whole
    network."""
    for encoder, channels in PYRAMIDS.items():
        taps = Encoder.of(encoder).taps([2, 4, 8, 16, 32], "Decoder")
        with torch.device("meta"):
            wanted = smp.Unet(encoder, encoder_weights=None).state_dict()
        came = zoo.find("encoder_unet").on(OUTLINE)(encoder=encoder).neutral_slots()
        with subtests.test(encoder):
            assert tuple(tap.channels for tap in taps) == channels
            assert [(key, slot.shape) for key, slot in came.items()] == [
                (key, tuple(value.shape)) for key, value in wanted.items()
            ]


# An encoder of the reference: ours, its settings, and the layout of the reference's names.
EFFICIENTNETS = {
    **{f"timm-efficientnet-b{i}": (f"efficientnet_b{i}", {}, "timm") for i in (0, 7)},
    **{
        f"efficientnet-b{i}": (f"efficientnet_b{i}", {}, "efficientnet_pytorch")
        for i in (0, 7)
    },
    "efficientnet-b0": (
        "efficientnet_b0",
        {"feature_blocks": (2, 4, 8, 15)},
        "efficientnet_pytorch",
    ),
}
UNIVERSAL = {
    "tu-mobilenetv3_large_100": ("mobilenet_v3_large", {}, "timm universal"),
    "tu-mobilenetv3_small_100": ("mobilenet_v3_small", {}, "timm universal"),
    "tu-regnetx_016": ("regnet_x_1_6gf", {}, "timm universal"),
    "tu-regnety_016": ("regnet_y_1_6gf", {}, "timm universal"),
    "tu-resnet34": ("resnet34", {}, "timm universal"),
    "tu-resnet50d": ("resnet50d", {}, "timm universal"),
    "tu-seresnet50": ("seresnet50", {}, "timm universal"),
    "tu-seresnext50_32x4d": ("seresnext50_32x4d", {}, "timm universal"),
}
SAME_NAME = (
    *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
    *("resnext50_32x4d", "resnext101_32x8d"),
    *zoo.list("vgg*"),
    *zoo.list("densenet*"),
    "mobilenet_v2",
)
ENCODERS = {name: (name, {}, None) for name in SAME_NAME} | EFFICIENTNETS | UNIVERSAL
ONE_OF_EACH = (
    "resnet50",
    "vgg11_bn",
    "densenet121",
    "mobilenet_v2",
    "efficientnet-b0",
    "timm-efficientnet-b0",
    "tu-mobilenetv3_small_100",
    "tu-regnety_016",
)
DILATED = ("deeplabv3", "deeplabv3plus")
NOT_DILATED = ("vgg", "densenet", "tu-mobilenet", "tu-regnet", "tu-resnet50d")


def on_shapes(decoder, encoder):
    """The reference without values."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its own names "timm-…"
        return decoder(encoder, encoder_weights=None)


def names_and_shapes(decoder, encoder):
    """Ours in the reference's names."""
    name, settings, layout = ENCODERS[encoder]
    net = zoo.find(decoder).on(OUTLINE)(encoder=name, encoder_settings=settings)
    shapes = {key: slot.shape for key, slot in net.neutral_slots().items()}
    if layout is None:
        return shapes
    (keymap,) = [keymap for keymap in net.keymaps if keymap.name == layout]
    return {new: shapes[old] for old, new in keymap.table(shapes).items()}


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_pair_has_the_references_names_and_shapes(decoder, subtests):
    """All encoders below one decoder, one of each family below the others."""
    for encoder in ENCODERS if decoder == "fpn" else ONE_OF_EACH:
        with subtests.test(encoder):
            if decoder in DILATED and encoder.startswith(NOT_DILATED):
                with pytest.raises(
                    SettingError, match="cannot keep its last stages|takes no dilation"
                ):
                    names_and_shapes(decoder, encoder)
                continue
            state = on_shapes(DECODERS[decoder], encoder).state_dict()
            wanted = {key: tuple(value.shape) for key, value in state.items()}
            came = names_and_shapes(decoder, encoder)
            if encoder.startswith(
                "tu-"
            ):  # some end with the last stage that the decoder takes
                came = {key: shape for key, shape in came.items() if key in wanted}
            assert came == wanted


# what: the reference's encoder, ours, its settings, the decoder and its settings
EQUAL = {
    "efficientnet": (
        "efficientnet-b0",
        "efficientnet_b0",
        {"same_padding": 224, "eps": 1e-3, "feature_blocks": (2, 4, 8, 15)},
        "fpn",
    ),
    "efficientnet with odd sides": (
        "efficientnet-b1",
        "efficientnet_b1",
        {"same_padding": 240, "eps": 1e-3},
        "fpn",
    ),
    "efficientnet of timm": ("timm-efficientnet-b0", "efficientnet_b0", {}, "fpn"),
    "mobilenet_v3": (
        "tu-mobilenetv3_small_100",
        "mobilenet_v3_small",
        {"eps": 1e-5},
        "fpn",
    ),
    "regnet": ("tu-regnety_004", "regnet_y_400mf", {}, "fpn"),
    "dilated mobilenet_v2": ("mobilenet_v2", "mobilenet_v2", {}, "deeplabv3plus"),
    "dilated efficientnet": (
        "efficientnet-b1",
        "efficientnet_b1",
        {"same_padding": 240, "eps": 1e-3},
        "deeplabv3",
    ),
    "dilated efficientnet of timm": (
        "timm-efficientnet-b0",
        "efficientnet_b0",
        {},
        "deeplabv3plus",
    ),
}


@pytest.mark.parametrize("row", EQUAL)
def test_the_references_files_of_whole_networks_give_its_outputs(row):
    theirs, encoder, settings, decoder = EQUAL[row]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        reference = DECODERS[decoder](theirs, encoder_weights=None).double().eval()
    state = scramble(reference)
    options = {"encoder": encoder, "encoder_settings": settings}
    net = on_torch(decoder, **options)
    report = zoo.load(net, state)
    assert report.complete
    assert report.notes == ()
    x = drawn(1, 3, 64, 96)
    close(net(x), reference(x), 1e-9)


def test_a_file_that_needs_other_settings_says_which():
    state = on_shapes(DECODERS["fpn"], "efficientnet-b1").state_dict()
    arrays = {key: np.zeros(value.shape, np.float32) for key, value in state.items()}
    net = zoo.build("fpn", backend="torch", encoder="efficientnet_b1")
    (note,) = zoo.load(net, arrays).notes
    assert "eps=1e-3" in note
    assert "same_padding=224" in note


SMALL = {
    "densenet121": (
        {"growth_rate": 4, "layers": (1, 2, 1, 2), "width": 6},
        {
            "growth_rate": 4,
            "block_config": (1, 2, 1, 2),
            "num_init_features": 6,
            "out_channels": [3, 6, 10, 13, 10, 13],
        },
    ),
    "mobilenet_v2": (
        {"width_mult": 0.1},
        {"width_mult": 0.1, "out_channels": [3, 8, 8, 8, 16, 1280]},
    ),
}


@pytest.mark.parametrize("encoder", SMALL)
def test_a_network_on_another_encoder_computes_what_the_reference_does(encoder):
    ours, theirs = SMALL[encoder]
    settings = {"decoder_channels": (6, 5, 6, 4, 4)}
    smp.encoders.encoders["small"] = {
        "encoder": smp.encoders.encoders[encoder]["encoder"],
        "params": theirs,
    }
    reference = smp.Unet("small", encoder_weights=None, **settings).double().eval()
    state = scramble(reference)
    net = on_torch("encoder_unet", encoder=encoder, encoder_settings=ours, **settings)
    net.load_neutral_state(state)
    x = drawn(2, 3, 64, 96)
    close(net(x), reference(x), 1e-9)


UNPADDED = (
    "alexnet",
    "inception_v3",
)  # their stages are smaller than the size divided by a power of two


def is_usable(name):
    """Whether a classifier has stages at 1/4 to 1/32 of the input's size."""
    stages = zoo.stages(name).values()
    return {4, 8, 16, 32} <= {
        2 ** round(np.log2(stage.reduction[0])) for stage in stages if stage.reduction
    }


def usable():
    """One classifier of the zoo of each class that has such stages: the first that has them."""
    by_class = {}
    for name in zoo.list(task="classification", dims=2):
        by_class.setdefault(zoo.find(name).network, []).append(name)
    firsts = (next(filter(is_usable, names), None) for names in by_class.values())
    return [name for name in firsts if name is not None]


def test_every_classifier_with_the_stages_is_an_encoder(subtests):
    names = usable()
    for name in (
        "resnet18",
        "vgg11",
        "densenet121",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "convnext_tiny",
    ):
        assert is_usable(name)
        assert zoo.find(name).network in {zoo.find(usable).network for usable in names}
    for name in names:
        size = zoo.find(name).input_shape[1] // 32 * 32
        with subtests.test(name):
            if name in UNPADDED:
                message = (
                    r"gives a stage .* of size .*, wanted .* take another encoder, or"
                )
                with pytest.raises(ShapeError, match=message):
                    zoo.outline("fpn", (3, size, size), encoder=name)
                continue
            outline = zoo.outline("fpn", (3, size, size), encoder=name, num_classes=5)
            assert outline.output == (1, 5, size, size)


class Own(zoo.Model):
    """A classifier of somebody's own, with a layer that no stage uses."""

    stem_paths, head_paths = ("first",), ("fc",)

    def __init__(self, num_classes=2, in_channels=3, dims=2, width=4):
        super().__init__()
        nn = self.nn
        conv = getattr(nn, f"Conv{dims}d")
        self.first, self.second = (
            conv(in_channels, width, 3, 2, 1),
            conv(width, 6, 3, 2, 1),
        )
        self.hidden = nn.Sequential(nn.Linear(6, 6))
        self.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()

    def forward(self, x):
        x = self.nn.mean(
            self.forward_stages(x)["half of half"], dim=tuple(range(2, len(x.shape)))
        )
        return self.fc(self.hidden(x))

    def forward_stages(self, x):
        half = self.first(x)
        return {"half": half, "half of half": self.second(half)}


OWN = {"encoder": Own, "encoder_depth": 2, "decoder_channels": (5, 4)}


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_an_own_class_is_an_encoder_in_any_dimensions(dims, backend):
    net = zoo.build(
        "encoder_unet",
        backend=backend.name,
        dims=dims,
        encoder_settings={"width": 3},
        num_classes=2,
        **OWN,
    )
    slots = net.neutral_slots()
    assert slots["encoder.first.weight"].shape == (3, 3, *(3,) * dims)
    assert not any(name.startswith(("encoder.hidden", "encoder.fc")) for name in slots)
    assert net.stem_paths == ("encoder.first",)
    x = (
        np.random.default_rng(0)
        .standard_normal((2, 3, *(8, 6, 5)[:dims]))
        .astype("float32")
    )
    (came,) = evaluate(backend, net, (x,), training=True).values()
    assert came.shape == (2, 2, *(8, 6, 5)[:dims])
    assert list(
        zoo.stages("encoder_unet", (3, *(8, 6, 5)[:dims]), dims=dims, **OWN)
    ) == [
        "half",
        "half of half",
        "decoder",
    ]


# Depth, dilation, joins
# -----------------------------------------------------------------------------


def test_layers_beyond_the_depth_stay_in_the_state_and_do_not_run(backend):
    net = zoo.build(
        "pspnet",
        backend=backend.name,
        encoder="resnet18",
        encoder_settings={"layers": (1,) * 4},
    )
    before = net.neutral_state()
    evaluate(
        backend,
        net,
        (np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("float32"),),
        training=True,
    )
    moved = {
        name
        for name, value in net.neutral_state().items()
        if not np.array_equal(value, before[name])
    }
    assert any(name.startswith("encoder.layer2") for name in moved)
    assert not any(
        name.startswith(("encoder.layer3", "encoder.layer4")) for name in moved
    )
    assert "encoder.layer4.0.conv1.weight" in before


@pytest.mark.parametrize("output_stride", [8, 16])
def test_bottlenecks_are_dilated_as_the_reference_does_it(output_stride):
    """Every 3x3 convolution of the stage, the first one too, which torchvision's own switch leaves
    out."""
    reference = (
        smp.encoders.get_encoder(
            "short_bottleneck", weights=None, output_stride=output_stride
        )
        .double()
        .eval()
    )
    settings = {
        **SHORT_BOTTLENECK["encoder_settings"],
        "output_stride": output_stride,
        "num_classes": 0,
    }
    net = on_torch("resnet50", **settings)
    net.load_neutral_state(arrays_of(reference))
    x = drawn(1, 3, 64, 48)
    for came, wanted in zip(
        net.forward_stages(x).values(), reference(x)[1:], strict=True
    ):
        close(came, wanted, 1e-9)


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "size"),
    [
        (
            "fpn",
            {
                "encoder_depth": 3,
                "pyramid_channels": 6,
                "segmentation_channels": 32,
            },
            {
                "encoder_depth": 3,
                "decoder_pyramid_channels": 6,
                "decoder_segmentation_channels": 32,
                "upsampling": 1,
            },
            (32, 48),
        ),
        (
            "pspnet",
            {"encoder_depth": 5, "psp_channels": 5},
            {"encoder_depth": 5, "psp_out_channels": 5, "upsampling": 32},
            (64, 96),
        ),
        (
            "deeplabv3",
            {
                "encoder_depth": 3,
                "output_stride": 16,
                "decoder_channels": 5,
                "separable": True,
            },
            {
                "encoder_depth": 3,
                "decoder_channels": 5,
                "encoder_output_stride": 16,
                "decoder_aspp_separable": True,
            },
            (32, 40),
        ),
        (
            "deeplabv3plus",
            {
                "encoder_depth": 3,
                "output_stride": 8,
                "decoder_channels": 5,
                "separable": False,
            },
            {
                "encoder_depth": 3,
                "encoder_output_stride": 8,
                "decoder_channels": 5,
                "decoder_aspp_separable": False,
            },
            (32, 40),
        ),
    ],
    ids=[
        "fpn, cat",
        "pspnet, 5",
        "deeplabv3, 3",
        "deeplabv3plus, 3",
    ],
)
def test_other_settings_give_the_references_numbers(name, ours, theirs, size):
    dilates = name.startswith("deeplab")  # the reference cannot dilate a VGG
    encoder, narrow = ("short", SHORT) if dilates else ("vgg_narrow", NARROW)
    reference = (
        without_dropout(DECODERS[name](encoder, encoder_weights=None, **theirs))
        .double()
        .eval()
    )
    state = scramble(reference)
    net = on_torch(name, **narrow, **ours)
    net.load_neutral_state(
        {key: value for key, value in state.items() if key in net.neutral_slots()}
    )
    assert [key for key in state if "decoder.center" not in key] == list(
        net.neutral_slots()
    )
    x = drawn(2, 3, *size)
    close(net(x), reference(x), 1e-9)


# Start values
# -----------------------------------------------------------------------------


def short_resnet(network, head):
    """Torchvision's network on a residual one of one block a stage."""
    layers = resnet.ResNet(
        resnet.Bottleneck,
        [1, 1, 1, 1],
        replace_stride_with_dilation=[False, True, True],
    )
    return network(IntermediateLayerGetter(layers, {"layer4": "out"}), head(2048, 21))


TORCHVISION = {
    "fcn_resnet50": partial(short_resnet, FCN, FCNHead),
    "deeplabv3_resnet50": partial(short_resnet, DeepLabV3, DeepLabHead),
}


@pytest.mark.parametrize("name", [*DECODERS, *TORCHVISION])
def test_start_values_have_the_spread_of_the_references(name):
    settings = SHORT if name in DECODERS else {}
    if name.endswith("resnet50"):
        settings = {"backbone_settings": {"layers": (1, 1, 1, 1)}}
    torch.manual_seed(0)
    reference = (
        DECODERS[name]("short", encoder_weights=None)
        if name in DECODERS
        else TORCHVISION[name]()
    )
    state = zoo.build(name, backend="torch", **settings).neutral_state()
    assert_same_distributions(state, reference)


# Bad input
# -----------------------------------------------------------------------------


class Plain(Network):
    """A network without stages."""

    def __init__(self, num_classes=2, in_channels=3):
        super().__init__()
        self.fc = self.nn.Linear(in_channels, num_classes or 1)


BAD = [
    (
        "fpn",
        {"encoder": "resnet81"},
        UnknownName,
        "Did you mean 'resnet8' or 'resnet18'",
    ),
    (
        "fpn",
        {"encoder": Plain},
        SettingError,
        "be an encoder: Plain has no forward_stages",
    ),
    (
        "fpn",
        {"encoder_settings": {"layer": (1,)}},
        ArgumentError,
        "no setting 'layer'. Did you",
    ),
    ("fcn_resnet50", {"backbone": "resnet5"}, UnknownName, "Did you mean"),
]


@pytest.mark.parametrize(("name", "settings", "error", "message"), BAD)
def test_bad_settings_are_named(name, settings, error, message):
    with pytest.raises(error, match=message):
        zoo.build(name, backend="torch", **settings)


MULTIPLES = {
    "fpn": 32,
    "pspnet": 8,
    "deeplabv3plus": 16,
    "unetplusplus": 32,
    "deeplabv3": 8,
}


def test_sizes_that_cannot_be_joined_are_told_what_to_pad_to(subtests):
    for name, multiple in MULTIPLES.items():
        message = (
            rf"multiple of {multiple}: pad it to \({3 * multiple}, {3 * multiple}\)"
        )
        with subtests.test(name), pytest.raises(ShapeError, match=message):
            zoo.outline(name, (3, 3 * multiple, 2 * multiple + 1))
