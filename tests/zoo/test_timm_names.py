"""timm's layouts of classifiers that torchvision has too: its weights give its outputs, and ours
go back to it. Those whose weights are published are tried in `tests.published.test_numbers`."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.references import compute_on_cpu
from tests.zoo.case import close, drawn, on_torch, scramble
from tests.zoo.cases import convnext, mobilenet_v4, swin, vit

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import timm
    from timm.models.convnext import ConvNeXt
    from timm.models.regnet import RegNet, RegNetCfg
    from timm.models.swin_transformer import SwinTransformer
    from timm.models.swin_transformer_v2 import SwinTransformerV2
    from timm.models.vgg import VGG, ConvMlp


compute_on_cpu(timm.models.regnet.RegNet, "_get_stage_args")


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
    "deit distilled": (
        "deit_tiny_distilled_patch16_224",
        vit.DISTILLED_SMALL,
        vit.distilled,
        (3, 15, 15),
    ),
    "siglip": ("vit_base_patch16_siglip_224", vit.SMALL, vit.siglip, (3, 15, 15)),
    "mobilenet v4": (
        "mobilenetv4_conv_small",
        mobilenet_v4.SETTINGS,
        mobilenet_v4.reference,
        (3, 33, 46),
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
    if isinstance(
        getattr(theirs, "head", None), torch.nn.Linear
    ):  # starts at zero in a ViT
        torch.nn.init.normal_(theirs.head.weight)
    state = scramble(theirs)
    ours = on_torch(name, **settings)
    x = drawn(2, *shape)
    return theirs, state, ours, x


@pytest.mark.parametrize("which", SMALL)
def test_timms_weights_give_timms_outputs_and_go_back(which):
    theirs, state, ours, x = pair(which)
    keymap = timm_map(ours)
    taken = ours.adapt_state(keymap.from_layout(state, ours.neutral_slots()))
    assert set(taken) == set(ours.neutral_slots())
    ours.load_neutral_state(taken)
    with torch.no_grad():
        wanted = theirs(x).numpy()
        close(ours(x), wanted, 1e-9)
    back = keymap.to_layout(ours.neutral_state())
    np.testing.assert_equal(back, state)


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
        ours.adapt_state(keymap.from_layout(given, slots)) for given in (older, state)
    )
    assert list(came) == list(wanted)
    np.testing.assert_equal(came, wanted)


def test_settings_that_make_other_outputs_are_named():
    (note,) = timm_map(zoo.find("mobilenet_v3_small").on(OUTLINE)()).notes
    assert "timm normalises with eps=1e-5" in note
    assert "this network has eps=0.001 and same_padding=False" in note
    for settings in ({"eps": 1e-5}, {"same_padding": True}):
        assert (
            timm_map(zoo.find("mobilenet_v3_small").on(OUTLINE)(**settings)).notes == ()
        )
