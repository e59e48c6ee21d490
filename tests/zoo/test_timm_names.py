"""timm's layouts of the classifiers that torchvision has too: its weights give its outputs, and
ours go back to it."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.references import compute_on_cpu
from tests.zoo.case import close, scramble
from tests.zoo.cases import convnext, efficientnet, swin, vit

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import timm
    from timm.models._efficientnet_blocks import SqueezeExcite
    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.convnext import ConvNeXt
    from timm.models.efficientnet import EfficientNet
    from timm.models.mobilenetv3 import MobileNetV3
    from timm.models.regnet import RegNet, RegNetCfg
    from timm.models.swin_transformer import SwinTransformer
    from timm.models.swin_transformer_v2 import SwinTransformerV2
    from timm.models.vgg import VGG, ConvMlp
    from timm.models.vision_transformer import VisionTransformer


compute_on_cpu(timm.models.regnet.RegNet, "_get_stage_args")


def efficientnet_as_timm(pad_type):
    """The stages of our case in timm's words."""
    blocks = [
        ["cn_r1_k3_s1_e1_c16_skip"],
        ["er_r1_k3_s2_e2_c24"],
        ["ds_r1_k3_s1_e1_c16_se0.25"],
        ["ir_r2_k5_s2_e2_c16_se0.25"],
    ]
    return EfficientNet(
        decode_arch_def(blocks),
        num_classes=5,
        num_features=20,
        stem_size=16,
        pad_type=pad_type,
        act_layer=torch.nn.SiLU,
        norm_layer=partial(torch.nn.BatchNorm2d, eps=1e-3),
    )


def mobilenet_v2_as_timm():
    """The groups of our case: expansion, channels, blocks, stride."""
    blocks = [["ds_r1_k3_s1_e1_c16"], ["ir_r2_k3_s2_e2_c24"], ["ir_r1_k3_s1_e3_c24"]]
    return EfficientNet(
        decode_arch_def([*blocks, ["ir_r1_k3_s2_e2_c32"]]),
        num_classes=5,
        num_features=1280,
        stem_size=32,
        round_chs_fn=partial(round_channels, multiplier=0.5),
        act_layer=torch.nn.ReLU6,
    )


def mobilenet_v3_as_timm(pad_type, eps):
    """The rows of our case."""
    blocks = [
        ["ds_r1_k3_s1_e1_c16_se0.25_nre"],
        ["ir_r1_k5_s2_e1.5_c16_nre"],
        ["ir_r1_k3_s2_e2.5_c24_se0.25", "ir_r1_k3_s1_e2_c24_se0.25"],
        ["cn_r1_k1_s1_c144"],
    ]
    return MobileNetV3(
        decode_arch_def(blocks),
        num_classes=5,
        num_features=24,
        stem_size=16,
        pad_type=pad_type,
        act_layer=torch.nn.Hardswish,
        se_layer=partial(
            SqueezeExcite,
            gate_layer=ExactHardsigmoid,
            force_act_layer=torch.nn.ReLU,
            rd_round_fn=round_channels,
        ),
        norm_layer=partial(torch.nn.BatchNorm2d, eps=eps),
    )


class ExactHardsigmoid(torch.nn.Module):
    """PyTorch's own takes a sixth in single precision."""

    def forward(self, x):
        return torch.nn.functional.relu6(x + 3.0) / 6.0


ROWS = (
    (3, 16, 16, True, "ReLU", 1),
    (5, 24, 16, False, "ReLU", 2),
    (3, 40, 24, True, "Hardswish", 2),
    (3, 48, 24, True, "Hardswish", 1),
)
MOBILENET_V3 = {"blocks": ROWS, "hidden": 24, "num_classes": 5}


def mnasnet_as_timm():
    """The stacks of our case."""
    blocks = [
        ["ds_r1_k3_s1_c16_noskip"],
        ["ir_r2_k3_s2_e3_c24"],
        ["ir_r1_k5_s2_e2_c40_noskip"],
    ]
    return EfficientNet(
        decode_arch_def(blocks),
        num_classes=5,
        num_features=1280,
        stem_size=32,
        round_chs_fn=partial(round_channels, multiplier=0.5),
    )


def vgg_as_timm():
    """Two blocks, and hidden layers of another width than 4096."""
    net = VGG([6, "M", 8, 8, "M"], num_classes=5)
    net.pre_logits = ConvMlp(8, 12)
    net.head = timm.layers.ClassifierHead(12, 5)
    return net


# timm works out the widths by the paper's rule: 8, 16, 32, 64 and 5 blocks
REGNET = {
    "layers": (1, 1, 2, 1),
    "widths": (8, 16, 32, 64),
    "group_width": 8,
    "num_classes": 5,
}
REGNET_RULE = partial(RegNetCfg, depth=5, w0=8, wa=11.0, wm=2.0, group_size=8)


# what it is: (our name, our settings, timm's network, one sample's shape)
SMALL = {
    "vit": (
        "vit_b_16",
        vit.SMALL | {"num_classes": 5},
        partial(
            VisionTransformer,
            img_size=15,
            patch_size=5,
            embed_dim=8,
            depth=2,
            num_heads=2,
            mlp_ratio=1.5,
            num_classes=5,
        ),
        (3, 15, 15),
    ),
    "deit distilled": (
        "deit_tiny_distilled_patch16_224",
        vit.DISTILLED_SMALL,
        vit.distilled,
        (3, 15, 15),
    ),
    "efficientnet": (
        "efficientnet_b0",
        efficientnet.SETTINGS,
        partial(efficientnet_as_timm, ""),
        (3, 32, 27),
    ),
    "efficientnet from TensorFlow": (
        "efficientnet_b0",
        efficientnet.SETTINGS | {"same_padding": True},
        partial(efficientnet_as_timm, "same"),
        (3, 32, 27),
    ),
    "convnext": (
        "convnext_tiny",
        convnext.SMALL | {"layers": (1, 2, 1, 1), "widths": (8, 12, 9, 10)},
        partial(
            ConvNeXt,
            depths=(1, 2, 1, 1),
            dims=(8, 12, 9, 10),
            num_classes=5,
            ls_init_value=0.5,
        ),
        (3, 67, 41),
    ),
    "convnext of convolutions": (
        "convnext_atto",
        convnext.SMALL | {"layers": (1, 2, 1, 1), "widths": (8, 12, 9, 10)},
        partial(
            ConvNeXt,
            depths=(1, 2, 1, 1),
            dims=(8, 12, 9, 10),
            num_classes=5,
            ls_init_value=0.5,
            conv_mlp=True,
        ),
        (3, 67, 41),
    ),
    "mobilenet_v2": (
        "mobilenet_v2",
        {
            "blocks": ((1, 16, 1, 1), (2, 24, 2, 2), (3, 24, 1, 1), (2, 32, 1, 2)),
            "width_mult": 0.5,
            "num_classes": 5,
        },
        mobilenet_v2_as_timm,
        (3, 33, 22),
    ),
    "mobilenet_v3": (
        "mobilenet_v3_large",
        MOBILENET_V3 | {"eps": 1e-5},
        partial(mobilenet_v3_as_timm, "", 1e-5),
        (3, 33, 22),
    ),
    "mobilenet_v3 from TensorFlow": (
        "mobilenet_v3_large",
        MOBILENET_V3 | {"same_padding": True},
        partial(mobilenet_v3_as_timm, "same", 1e-3),
        (3, 33, 22),
    ),
    "mnasnet": (
        "mnasnet0_5",
        {"stacks": ((24, 3, 2, 3, 2), (40, 5, 2, 2, 1)), "num_classes": 5},
        mnasnet_as_timm,
        (3, 33, 22),
    ),
    "regnet x": (
        "regnet_x_400mf",
        REGNET,
        partial(RegNet, REGNET_RULE(se_ratio=0.0), num_classes=5),
        (3, 33, 22),
    ),
    "regnet y": (
        "regnet_y_400mf",
        REGNET,
        partial(RegNet, REGNET_RULE(se_ratio=0.25), num_classes=5),
        (3, 33, 22),
    ),
    "vgg": (
        "vgg11",
        {"layers": (1, 2), "widths": (6, 8), "hidden": 12, "num_classes": 5},
        vgg_as_timm,
        (3, 28, 28),  # the least size at which both see a last map of 7x7
    ),
    "swin": (
        "swin_t",
        swin.SMALL,
        partial(
            SwinTransformer,
            img_size=24,
            embed_dim=8,
            depths=(2, 2),
            num_heads=(2, 4),
            window_size=3,
            num_classes=5,
        ),
        (3, 24, 24),
    ),
    "swin v2": (
        "swin_v2_t",
        swin.SMALL | {"window_size": (8, 4), "pretrained_window_size": (3, 2)},
        partial(
            SwinTransformerV2,
            img_size=32,
            embed_dim=8,
            depths=(2, 2),
            num_heads=(2, 4),
            window_size=8,
            pretrained_window_sizes=(3, 2),
            num_classes=5,
        ),
        (3, 32, 32),
    ),
}


def timm_map(network):
    (keymap,) = [keymap for keymap in network.keymaps if keymap.name == "timm"]
    return keymap


def pair(which):
    """timm's network with a state away from its start, and ours."""
    name, settings, make, shape = SMALL[which]
    torch.manual_seed(0)
    theirs = make().double().eval()
    if isinstance(theirs, VisionTransformer):  # whose head starts at zero
        torch.nn.init.normal_(theirs.head.weight)
    state = scramble(theirs)
    ours = zoo.build(name, backend="torch", dtype="float64", **settings).eval()
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, *shape)))
    return theirs, state, ours, x


@pytest.mark.parametrize("which", SMALL)
def test_timms_weights_give_timms_outputs_and_go_back(which):
    theirs, state, ours, x = pair(which)
    keymap = timm_map(ours)
    taken = ours.adapt_state(keymap.to_ours(state, ours.neutral_slots()))
    assert set(taken) == set(ours.neutral_slots())
    ours.load_neutral_state(taken)
    with torch.no_grad():
        wanted = theirs(x).numpy()
        close(ours(x).numpy(), wanted, 1e-9)
    back = keymap.to_theirs(ours.neutral_state())
    assert set(back) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(back[name], value)


@pytest.mark.parametrize("which", ["swin", "swin v2"])
def test_swins_older_files_have_the_merging_a_stage_earlier_and_tables_that_are_computed(
    which,
):
    _, state, ours, _ = pair(which)
    older = {}
    for name, value in state.items():
        name = name.replace("layers.1.downsample", "layers.0.downsample").replace(
            "head.fc", "head"
        )
        older[name] = value
    older["layers.0.blocks.0.attn.relative_position_index"] = np.zeros((9, 9), np.int64)
    older["layers.0.blocks.0.attn.relative_coords_table"] = np.zeros((1, 5, 5, 2))
    older["layers.0.blocks.1.attn_mask"] = np.zeros((4, 9, 9))
    keymap, slots = timm_map(ours), ours.neutral_slots()
    came, wanted = (
        ours.adapt_state(keymap.to_ours(given, slots)) for given in (older, state)
    )
    assert list(came) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(came[name], value)


def test_settings_that_make_other_outputs_are_named():
    (note,) = timm_map(zoo.find("mobilenet_v3_small").on(OUTLINE)()).notes
    assert "timm normalises with eps=1e-5" in note
    assert "this network has eps=0.001 and same_padding=False" in note
    for settings in ({"eps": 1e-5}, {"same_padding": True}):
        assert (
            timm_map(zoo.find("mobilenet_v3_small").on(OUTLINE)(**settings)).notes == ()
        )
