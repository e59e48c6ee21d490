"""Medical segmentation: ties, deep supervision, start values, sizes, old layouts, and what no case
covers."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from monai.networks.nets import (
    UNETR,
    AttentionUnet,
    DynUNet,
    SegResNet,
    SwinUNETR,
    VNet,
)
from numpy.testing import assert_array_equal, assert_equal

from deliralike import zoo
from deliralike.errors import StateError
from deliralike.network import build
from deliralike.zoo.segmentation.swin_unetr import PatchMerging
from tests.zoo.case import DYNUNET, NNUNET, close, scramble

RNG = np.random.default_rng(4)
TIED = [
    ("nnunet", NNUNET),
    ("nnunet_resenc_m", {**NNUNET, "n_blocks_per_stage": 1}),
    ("dynunet", {**DYNUNET, "deep_supervision": True}),
]


def arrays(*shape):
    return RNG.standard_normal(shape)


# Ties
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), TIED)
def test_the_duplicates_are_one_array(name, settings, backend):
    net = zoo.build(name, backend=backend.name, **settings)
    ties = _ties(net)
    once = [paths[0] for paths in ties]
    assert len(once) < len(net.neutral_slots())
    assert not any(
        "all_modules" in path or path.startswith(("decoder.encoder", "skip_layers"))
        for path in once
    )
    assert any(len(paths) == (4 if name.startswith("nnunet") else 2) for paths in ties)
    assert _ties(copy.deepcopy(net)) == ties


@pytest.mark.parametrize(("name", "settings"), TIED)
def test_a_state_with_each_name_once_is_enough(name, settings, backend):
    net = zoo.build(name, backend=backend.name, seed=1, **settings)
    other = zoo.build(name, backend=backend.name, seed=2, **settings)
    whole = net.neutral_state()
    once = net.adapt_state(whole)
    ties = _ties(net)
    assert len(ties) == len(once)
    assert all(len(set(paths) & set(once)) == 1 for paths in ties)
    assert other.load_neutral_state(once).complete
    assert_equal(other.neutral_state(), whole)


def _ties(net):
    names: dict = {}
    for path, slot in net.neutral_slots().items():
        names.setdefault(id(slot.native), []).append(path)
    return list(names.values())


# Deep supervision
# -----------------------------------------------------------------------------


def test_nnunet_gives_all_sizes_also_in_evaluation_until_it_is_switched_off(backend):
    net = zoo.build(
        "nnunet", backend=backend.name, deep_supervision=True, **NNUNET
    ).eval()
    x = backend.array(arrays(1, 1, 16, 8).astype("float32"))
    fine, coarse = net(x)
    assert [tuple(y.shape) for y in (fine, coarse)] == [(1, 2, 16, 8), (1, 2, 8, 4)]
    net.decoder.deep_supervision = False
    assert_array_equal(backend.numpy(net(x)), backend.numpy(fine))


def test_dynunet_stacks_all_sizes_in_training_only():
    net = zoo.build("dynunet", backend="torch", deep_supervision=True, **DYNUNET)
    x = torch.from_numpy(arrays(1, 1, 16, 8).astype("float32"))
    assert tuple(net(x).shape) == (1, 2, 2, 16, 8)
    assert tuple(net.eval()(x).shape) == (1, 2, 16, 8)


# Start values
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nnunet", "nnunet_resenc_m", "dynunet"])
def test_nnunets_start_values(name):
    settings = {"filters": (32, 64, 64)} | DYNUNET if name == "dynunet" else NNUNET
    settings = {
        **settings,
        **{k: (32, 64, 64) for k in ("filters", "features_per_stage") if k in settings},
    }
    if name == "nnunet_resenc_m":
        settings["n_blocks_per_stage"] = 1
    state = zoo.build(name, backend="torch", **settings).neutral_state()
    for path, value in state.items():
        if value.ndim == 4 and value.size > 5000:
            fan = value.shape[1] * value.shape[2] * value.shape[3]
            assert value.std() == pytest.approx(np.sqrt(2 / 1.0001 / fan), rel=0.05), (
                path
            )
        elif path.endswith("bias"):
            assert not value.any(), path
    last = [
        path
        for path in state
        if ".conv2." in path and path.endswith(("norm.weight", "all_modules.1.weight"))
    ]
    assert bool(last) == (name == "nnunet_resenc_m")
    assert not any(state[path].any() for path in last)


# The references, where no case goes: with one and three axes, other blocks
# -----------------------------------------------------------------------------

NORM1 = {
    "norm_op": torch.nn.InstanceNorm1d,
    "norm_op_kwargs": {"affine": True},
    "nonlin": torch.nn.LeakyReLU,
}
OTHERS = {
    "nnunet in 1d": (
        "nnunet",
        {**NNUNET, "dims": 1, "deep_supervision": True},
        (1, 8),
        partial(
            PlainConvUNet,
            1,
            3,
            (3, 4, 5),
            torch.nn.Conv1d,
            3,
            (1, 2, 2),
            2,
            2,
            2,
            True,
            **NORM1,
            deep_supervision=True,
        ),
    ),
    "dynunet in 1d": (
        "dynunet",
        {**DYNUNET, "dims": 1, "deep_supervision": True, "res_block": True},
        (1, 8),
        partial(
            DynUNet,
            1,
            1,
            2,
            (3, 3, 3),
            (1, 2, 2),
            (2, 2),
            (3, 4, 5),
            deep_supervision=True,
            res_block=True,
        ),
    ),
    "attention in 1d": (
        "attention_unet",
        {"channels": (3, 4), "strides": (2,), "dims": 1},
        (1, 8),
        partial(AttentionUnet, 1, 1, 2, (3, 4), (2,)),
    ),
    "attention in 3d": (
        "attention_unet",
        {"channels": (3, 4), "strides": ((1, 2, 2),), "dims": 3},
        (1, 3, 4, 8),
        partial(AttentionUnet, 3, 1, 2, (3, 4), ((1, 2, 2),)),
    ),
    "segresnet in 2d": (
        "segresnet",
        {"blocks_down": (1, 1), "blocks_up": (1,), "dims": 2},
        (1, 8, 4),
        partial(SegResNet, 2, 8, blocks_down=(1, 1), blocks_up=(1,)),
    ),
    "vnet in 3d": (
        "vnet",
        {"in_channels": 4, "out_channels": 3, "dropout": 0.0, "skip_dropout": 0.0},
        (4, 16, 16, 16),
        partial(VNet, 3, 4, 3),
    ),
    "unetr in 3d": (
        "unetr",
        {
            "img_size": (16, 32, 16),
            "feature_size": 2,
            "hidden_size": 4,
            "mlp_dim": 6,
            "num_heads": 2,
            "out_channels": 2,
            "norm": "batch",
        },
        (1, 16, 32, 16),
        partial(UNETR, 1, 2, (16, 32, 16), 2, 4, 6, 2, "conv", "batch"),
    ),
    "swin_unetr in 3d": (
        "swin_unetr",
        {
            "feature_size": 12,
            "depths": (2, 1, 1, 1),
            "num_heads": (2, 2, 2, 2),
            "window_size": (3, 4, 5),
            "mlp_ratio": 0.5,
            "out_channels": 2,
            "use_v2": True,
        },
        (1, 32, 32, 64),
        partial(
            SwinUNETR,
            1,
            2,
            depths=(2, 1, 1, 1),
            num_heads=(2, 2, 2, 2),
            window_size=(3, 4, 5),
            mlp_ratio=0.5,
            feature_size=12,
            use_v2=True,
        ),
    ),
}


@pytest.mark.parametrize("label", OTHERS)
def test_other_settings_give_the_references_numbers(label):
    name, settings, shape, make = OTHERS[label]
    torch.manual_seed(0)
    theirs = make().double()
    state = scramble(theirs)
    ours = zoo.build(name, backend="torch", dtype="float64", **settings)
    assert [(key, slot.shape) for key, slot in ours.neutral_slots().items()] == [
        (key, value.shape) for key, value in state.items()
    ]
    ours.load_neutral_state(state)
    x = torch.from_numpy(arrays(1 if name in ("vnet", "swin_unetr") else 2, *shape))
    for training in (
        (False, True) if name != "vnet" else (False,)
    ):  # its reference always drops in training
        with torch.no_grad():
            came, wanted = ours.train(training)(x), theirs.train(training)(x)
        for mine, other in (
            zip(came, wanted, strict=True)
            if isinstance(wanted, list)
            else [(came, wanted)]
        ):
            close(mine, other, 1e-10)


# Swin UNETR's own
# -----------------------------------------------------------------------------


def test_index_tables_of_a_file_are_not_taken_over():
    settings = {"feature_size": 12, "window_size": 3, "dims": 2}
    net = zoo.build("swin_unetr", backend="torch", **settings)
    state = net.neutral_state()
    index = next(name for name in state if name.endswith("relative_position_index"))
    mended = net.adapt_state({**state, index: np.zeros_like(state[index])})
    assert_array_equal(mended[index], state[index])


# Bad input
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), TIED)
def test_names_that_disagree_are_kept_and_refused(name, settings):
    net = zoo.build(name, backend="torch", **settings)
    state = net.neutral_state()
    first, *_, last = max(_ties(net), key=len)
    state[last] = state[last] + 1.0
    adapted = net.adapt_state(state)
    assert {first, last} <= set(adapted)
    with pytest.raises(StateError, match="one tied parameter"):
        net.load_neutral_state(adapted)


MERGED = {
    "mergingv2": "aaa aab aba abb baa bab bba bbb",
    "merging0.9": "aaa baa aba aab bab aba aab bbb",  # two are taken twice
}


@pytest.mark.parametrize("order", MERGED)
def test_neighbours_merge_in_the_order_that_is_named(order):
    net = build(PatchMerging.on("torch"), 3, 3, order, dtype="float64")
    x = torch.from_numpy(arrays(2, 4, 6, 2, 3))
    half = {"a": slice(0, None, 2), "b": slice(1, None, 2)}
    corners = [tuple(half[side] for side in corner) for corner in MERGED[order].split()]
    joined = torch.cat([x[(slice(None), *corner)] for corner in corners], -1)
    expected = torch.nn.functional.layer_norm(joined, (24,)) @ net.reduction.weight.T
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)
