"""timm's layouts of the classifiers that torchvision has too: its weights give its outputs, and
ours go back to it."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.zoo.case import close, scrambled
from tests.zoo.cases import convnext, efficientnet, swin, vit

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import timm
    from timm.models._efficientnet_builder import decode_arch_def
    from timm.models.convnext import ConvNeXt
    from timm.models.efficientnet import EfficientNet
    from timm.models.swin_transformer import SwinTransformer
    from timm.models.vision_transformer import VisionTransformer


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
            ConvNeXt, depths=(1, 2, 1, 1), dims=(8, 12, 9, 10), num_classes=5, ls_init_value=0.5
        ),
        (3, 67, 41),
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
}

FULL = {
    "vit_b_16": "vit_base_patch16_224",
    "vit_b_32": "vit_base_patch32_224",
    "vit_l_16": "vit_large_patch16_224",
    "vit_l_32": "vit_large_patch32_224",
    "vit_h_14": "vit_huge_patch14_224",
    "deit_tiny_patch16_224": "deit_tiny_patch16_224",
    "deit_small_patch16_224": "deit_small_patch16_224",
    "deit_base_patch16_224": "deit_base_patch16_224",
    **{f"efficientnet_b{i}": f"efficientnet_b{i}" for i in range(8)},
    **{f"efficientnet_v2_{size}": f"tf_efficientnetv2_{size}" for size in "sml"},
    **{f"convnext_{size}": f"convnext_{size}" for size in ("tiny", "small", "base", "large")},
    "swin_t": "swin_tiny_patch4_window7_224",
    "swin_s": "swin_small_patch4_window7_224",
    "swin_b": "swin_base_patch4_window7_224",
}


def timm_map(network):
    (keymap,) = [keymap for keymap in network.keymaps if keymap.name == "timm"]
    return keymap


def pair(which):
    """timm's network with a state away from its start, and ours."""
    name, settings, make, shape = SMALL[which]
    torch.manual_seed(0)
    theirs = make().double().eval()
    state = scrambled({key: value.numpy() for key, value in theirs.state_dict().items()})
    if "head.weight" in state:  # ViT's starts at zero
        state["head.weight"] = np.random.default_rng(2).standard_normal(state["head.weight"].shape)
    theirs.load_state_dict(
        {key: torch.from_numpy(np.asarray(value)) for key, value in state.items()}
    )
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


ONE_EACH = (
    "vit_b_16",
    "deit_tiny_patch16_224",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "convnext_tiny",
    "swin_t",
)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(ONE_EACH, id="one of each"),
        pytest.param(
            [name for name in FULL if name not in ONE_EACH], id="others", marks=pytest.mark.long
        ),
    ],
)
def test_every_array_has_a_place_at_full_size(names, subtests):
    for name in names:
        with torch.device("meta"):
            state = timm.create_model(FULL[name], num_classes=1000).state_dict()
        ours = zoo.find(name).on(OUTLINE)()
        slots, keymap = ours.neutral_slots(), timm_map(ours)
        zeros = {
            ours_: np.broadcast_to(np.zeros(()), slots[ours_].shape)
            for ours_ in keymap.table(slots)
        }
        came = {key: value.shape for key, value in keymap.to_theirs(zeros).items()}
        with subtests.test(name):
            assert came == {key: tuple(value.shape) for key, value in state.items()}
            assert [
                key
                for key in slots
                if key not in zeros and not key.endswith("relative_position_index")
            ] == []


def test_swins_older_files_have_the_merging_a_stage_earlier_and_tables_that_are_computed():
    _, state, ours, _ = pair("swin")
    older = {}
    for name, value in state.items():
        name = name.replace("layers.1.downsample", "layers.0.downsample").replace("head.fc", "head")
        older[name] = value
    older["layers.0.blocks.0.attn.relative_position_index"] = np.zeros((9, 9), np.int64)
    older["layers.0.blocks.1.attn_mask"] = np.zeros((4, 9, 9))
    keymap, slots = timm_map(ours), ours.neutral_slots()
    came, wanted = (ours.adapt_state(keymap.to_ours(given, slots)) for given in (older, state))
    assert list(came) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(came[name], value)
