"""What is peculiar to vision transformers, Swin, EfficientNet, ConvNeXt and the perceptrons over
patches."""

from itertools import product

import numpy as np
import pytest
import torch
from torchvision.models.vision_transformer import interpolate_embeddings

from deliralike import zoo
from deliralike.errors import SettingError, ShapeError
from deliralike.zoo.tables import resampled
from tests.zoo.case import close
from tests.zoo.cases import CASES, swin, vit

FAMILIES = (
    "vit_b_16",
    "efficientnet_b0",
    "convnext_tiny",
    "swin_t",
    "mixer_s32_224",
    "resmlp_12_224",
)


def generator():
    return np.random.default_rng(5)


def test_multiply_adds_of_the_mixer_are_near_the_papers():
    """Table 2, which counts the layers between the products as well."""
    assert zoo.outline("mixer_b16_224").multiply_adds / 1e9 == pytest.approx(12.7, rel=0.01)


# Start values
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("label", FAMILIES)
def test_start_values_have_the_references_distributions(label):
    """Constants are equal; of what is drawn, the root of the mean square is, as far as so few
    numbers tell."""
    case = CASES[label]
    torch.manual_seed(4)
    theirs = dict(case.reference().named_parameters())
    ours = case.build("torch").neutral_state()
    for name, parameter in theirs.items():
        wanted, came = parameter.detach().double().numpy(), np.asarray(ours[name])
        if name in ("heads.head.weight", "head.weight") and not came.any():
            continue  # these start at zero; the case's reference draws them
        if wanted.std() == 0:
            np.testing.assert_allclose(came, wanted, rtol=1e-6, err_msg=name)
        elif wanted.size > 4:
            ratio = np.sqrt(np.mean(came**2) / np.mean(wanted**2))
            assert abs(np.log(ratio)) < 5 / np.sqrt(wanted.size), (name, ratio)


def test_heads_of_transformers_and_mixers_start_at_zero_as_the_references_do():
    for name, head in (("vit_b_16", "heads.head.weight"), ("mixer_s32_224", "head.weight")):
        assert not CASES[name].build("torch").neutral_state()[head].any()


# Position tables
# -----------------------------------------------------------------------------


def test_tables_are_resampled_as_pytorch_does(subtests):
    sizes = [(3, 5), (7, 4), (5, 5), (4, 1), (1, 3), (2, 9), (14, 24)]
    for (old, new), align_corners in product(sizes, (True, False)):
        table = generator().standard_normal((old, old, 2))
        as_image = torch.from_numpy(table.transpose(2, 0, 1))[None]
        wanted = torch.nn.functional.interpolate(
            as_image, (new, new), mode="bicubic", align_corners=align_corners
        )
        with subtests.test(old=old, new=new, align_corners=align_corners):
            close(resampled(table, new, align_corners), wanted[0].numpy().transpose(1, 2, 0), 1e-12)


@pytest.mark.parametrize("image_size", [10, 25])
def test_position_tables_of_another_image_size_are_torchvisions(image_size):
    source = zoo.build("vit_b_16", backend="torch", dtype="float64", **vit.SMALL).neutral_state()
    target = zoo.build(
        "vit_b_16", backend="torch", dtype="float64", **vit.SMALL | {"image_size": image_size}
    )
    wanted = interpolate_embeddings(
        image_size, 5, {name: torch.from_numpy(v) for name, v in source.items()}
    )
    name = "encoder.pos_embedding"
    came = target.adapt_weight(name, source[name], target.neutral_slots()[name].shape)
    close(came, wanted[name].numpy(), 1e-12)
    assert target.adapt_weight("encoder.ln.weight", source["encoder.ln.weight"], (9,)) is None
    assert (
        target.adapt_weight(name, source[name][:, :-1], target.neutral_slots()[name].shape) is None
    )


def test_the_bias_table_of_another_window_is_resampled_and_the_index_is_the_networks_own():
    source = zoo.build("swin_t", backend="torch", dtype="float64", **swin.SMALL).neutral_state()
    target = zoo.build(
        "swin_t", backend="torch", dtype="float64", **swin.SMALL | {"window_size": 4}
    )
    name = "features.1.1.attn.relative_position_bias_table"
    shape = target.neutral_slots()[name].shape
    as_image = torch.from_numpy(source[name].reshape(1, 5, 5, 2)).permute(0, 3, 1, 2)
    wanted = (
        torch.nn.functional.interpolate(as_image, (7, 7), mode="bicubic")
        .permute(0, 2, 3, 1)
        .reshape(49, 2)
    )
    close(target.adapt_weight(name, source[name], shape), wanted.numpy(), 1e-12)
    mended, own = target.adapt_state(source), target.neutral_state()
    for key in (key for key in own if key.endswith("relative_position_index")):
        np.testing.assert_array_equal(mended[key], own[key])


def test_part_of_a_state_gets_no_tables():
    network = zoo.build("swin_t", backend="torch", **swin.SMALL)
    assert list(network.adapt_state({"head.bias": np.zeros(5)})) == ["head.bias"]


# Stages, heads, other numbers of axes
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("label", FAMILIES)
def test_without_classes_the_head_is_left_out_and_its_input_comes(label):
    case = CASES[label]
    whole, headless = (
        case.build("torch").eval(),
        zoo.build(
            case.name, backend="torch", dtype="float64", **{**case.settings, "num_classes": 0}
        ).eval(),
    )
    state = whole.neutral_state()
    (path,) = whole.head_paths
    weight, bias = (
        generator().standard_normal(state.pop(f"{path}.{part}").shape)
        for part in ("weight", "bias")
    )
    whole.load_neutral_state({**state, f"{path}.weight": weight, f"{path}.bias": bias})
    headless.load_neutral_state(state)
    x = [torch.from_numpy(array) for array in case.inputs()]
    with torch.no_grad():
        close(headless(*x).numpy() @ weight.T + bias, whole(*x).numpy(), 1e-12)


@pytest.mark.parametrize("label", FAMILIES)
def test_stages_are_maps_of_their_reduction(label):
    case = CASES[label]
    network = case.build("torch").eval()
    x = torch.from_numpy(case.inputs()[0])
    with torch.no_grad():
        stages = network.forward_stages(x)
    described = zoo.stages(case.name, x.shape[1:], **case.settings)
    assert {name: tuple(stage.shape[1:]) for name, stage in stages.items()} == {
        name: stage.shape for name, stage in described.items()
    }
    assert all(stage.ndim == 4 for name, stage in stages.items() if name != "class_token")


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(("label", "length"), [("efficientnet_b0", 1), ("convnext_tiny", 8)])
def test_a_further_axis_that_kernels_do_not_look_along_changes_nothing(label, length, dims):
    """Each kernel stands where it sees the first element alone, and the further axis ends with a
    single one."""
    case = CASES[label]
    narrow, wide = (
        zoo.build(case.name, backend="torch", dtype="float64", **case.settings, dims=d).eval()
        for d in (dims, dims + 1)
    )
    state, wider = narrow.neutral_state(), {}
    for name, slot in wide.neutral_slots().items():
        wider[name] = np.zeros(slot.shape)
        if wider[name].shape == state[name].shape:
            wider[name] = state[name]
        else:
            kernel = slot.shape[-1]
            wider[name][..., kernel // 2 if kernel % 2 else 0] = state[name]
    wide.load_neutral_state(wider)
    x = generator().standard_normal((2, 3, *(19, 17, length)[2 - dims :]))
    with torch.no_grad():
        close(
            wide(torch.from_numpy(x)).numpy(),
            narrow(torch.from_numpy(x[..., 0].copy())).numpy(),
            1e-9,
        )


# Bad input
# -----------------------------------------------------------------------------


def build(name, **settings):
    return zoo.build(name, backend="torch", **settings)


SETTINGS = [
    (
        "vit_b_16",
        {"image_size": 30, "patch_size": 16},
        "image_size=30 cannot be divided by patch_size=16",
    ),
    ("vit_b_16", {"num_classes": -1}, "num_classes"),
    ("vit_b_16", {"hidden_dim": 9, "num_heads": 2}, "embed_dim=9 cannot be divided by num_heads=2"),
    ("efficientnet_b0", {"stages": ()}, "stages="),
    ("efficientnet_b0", {"stages": (("mbconv", 1, 3, 1, 8, 1),)}, "'mb' or 'fused'"),
    ("efficientnet_b0", {"stages": (("mb", 1, 3, 1, 8, 0),)}, "blocks must be a whole number"),
    ("efficientnet_b0", {"dims": 4}, "dims=4"),
    ("convnext_tiny", {"layers": (1, 2)}, "two numbers for each stage"),
    ("convnext_tiny", {"layers": (1, 0, 1, 1)}, "layers must be"),
    ("swin_t", {"depths": 3}, "two numbers a stage"),
    ("swin_t", {"num_heads": (5, 6, 12, 24)}, "cannot be divided by num_heads=5"),
    ("swin_t", {"window_size": 0}, "window_size"),
    ("mixer_s32_224", {"block": "mixed"}, "Did you mean 'mixer'"),
    ("mixer_s32_224", {"image_size": 100}, "cannot be divided"),
]


def test_settings_that_make_no_sense_are_refused(subtests):
    for name, settings, message in SETTINGS:
        with subtests.test(name, **settings), pytest.raises(SettingError, match=message):
            build(name, **settings)


SHAPES = [
    ("vit_b_16", (1, 3, 20, 15), "height and width of 15"),
    ("vit_b_16", (1, 4, 15, 15), "conv_proj"),
    ("mixer_s32_224", (1, 3, 20, 20), "height and width of 15"),
    ("mixer_s32_224", (1, 4, 15, 15), "stem.proj"),
    ("efficientnet_b0", (1, 4, 15, 15), "features.0.0"),
    ("efficientnet_b0", (1, 3, 15), "features.0.0"),
    ("convnext_tiny", (1, 4, 15, 15), "features.0.0"),
    ("convnext_tiny", (1, 3, 15, 7), "too small for the stage 'stage2': it needs at least 8"),
    ("swin_t", (1, 4, 15, 15), "features.0.0"),
    ("swin_t", (1, 3, 15, 3), "features.0.0"),
]


def test_inputs_that_do_not_fit_name_the_layer_or_the_stage(subtests):
    for label, shape, message in SHAPES:
        with subtests.test(label, shape=shape), pytest.raises(ShapeError, match=message):
            CASES[label].build("torch").eval()(torch.zeros(shape, dtype=torch.float64))
