"""What is peculiar to vision transformers, Swin, EfficientNet, both ConvNeXts and the
perceptrons over patches."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal, assert_equal
from torchvision.models.vision_transformer import interpolate_embeddings

from deliralike import weights, zoo
from deliralike.errors import ShapeError
from deliralike.zoo.classification.efficientvit import LinearAttention
from deliralike.zoo.tables import CORNERS, EDGES, SMOOTH, resampled
from tests.references import Later
from tests.zoo.case import close, drawn, on_torch
from tests.zoo.cases import CASES, dinov3, swin, vit
from tests.zoo.cases.llama import in_double_precision

resample_abs_pos_embed = Later("timm.layers.pos_embed.resample_abs_pos_embed")
DeiTConfig = Later("transformers.DeiTConfig")
HFDeiT = Later("transformers.DeiTForImageClassificationWithTeacher")
DINOv3Config = Later("transformers.DINOv3ViTConfig")
HFDINOv3 = Later("transformers.DINOv3ViTModel")
SiglipConfig = Later("transformers.SiglipConfig")
HFSiglip = Later("transformers.SiglipModel")
HF_DINOV2 = {
    "vit_small_patch14_dinov2": (
        Later("transformers.Dinov2Config"),
        Later("transformers.Dinov2Model"),
    ),
    "vit_small_patch14_reg4_dinov2": (
        Later("transformers.Dinov2WithRegistersConfig"),
        Later("transformers.Dinov2WithRegistersModel"),
    ),
}


def generator():
    return np.random.default_rng(5)


def test_multiply_adds_of_the_mixer_are_near_the_papers():
    """Table 2, which counts the layers between the products as well."""
    assert zoo.outline("mixer_b16_224").multiply_adds / 1e9 == pytest.approx(
        12.7, rel=0.01
    )


# Start values
# -----------------------------------------------------------------------------


def test_heads_of_transformers_and_mixers_start_at_zero_as_the_references_do():
    for name, head in (
        ("vit_b_16", "heads.head.weight"),
        ("mixer_s32_224", "head.weight"),
    ):
        assert not CASES[name].build("torch").neutral_state()[head].any()


# Position tables
# -----------------------------------------------------------------------------


def test_tables_are_resampled_as_pytorch_does(subtests):
    sizes = [(3, 5), (7, 4), (5, 5), (4, 1), (1, 3), (2, 9), (14, 24)]
    rules = {CORNERS: (True, False), EDGES: (False, False), SMOOTH: (False, True)}
    for (old, new), matrix in product(sizes, rules):
        align_corners, antialias = rules[matrix]
        table = generator().standard_normal((old, old, 2))
        as_image = torch.from_numpy(table.transpose(2, 0, 1))[None]
        wanted = torch.nn.functional.interpolate(
            as_image, (new, new), None, "bicubic", align_corners, None, antialias
        )
        with subtests.test(
            old=old, new=new, align_corners=align_corners, antialias=antialias
        ):
            close(
                resampled(table, new, matrix),
                wanted[0].numpy().transpose(1, 2, 0),
                1e-12,
            )


def by_torchvision(table, tokens):
    size = 5 * math.isqrt(tokens - 1)
    return interpolate_embeddings(size, 5, {"encoder.pos_embedding": table})[
        "encoder.pos_embedding"
    ]


def by_timm(table, tokens):
    prefixes = {6: 2, 27: 2, 4: 0, 25: 0}.get(tokens, 1)
    side = math.isqrt(tokens - prefixes)
    return resample_abs_pos_embed(table, [side, side], num_prefix_tokens=prefixes)


def by_hugging_face(table, tokens):
    side, old = math.isqrt(tokens - 1), math.isqrt(table.shape[1] - 1)
    grid = table[:, 1:].reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, (side, side), mode="bicubic")
    return torch.cat(
        [table[:, :1], grid.permute(0, 2, 3, 1).reshape(1, side * side, -1)], 1
    )


RULES = [
    ("vit_b_16", "", by_torchvision),
    ("vit_b_16", "timm", by_timm),
    ("vit_b_16", "transformers", by_hugging_face),
    ("deit_tiny_patch16_224", "timm", by_timm),
    ("deit_tiny_patch16_224", "", by_timm),
    ("deit_tiny_distilled_patch16_224", "", by_timm),
    ("vit_small_patch14_dinov2", "timm", by_timm),
    ("vit_small_patch14_reg4_dinov2", "", by_timm),
]


@pytest.mark.parametrize("image_size", [10, 25])
@pytest.mark.parametrize(("name", "layout", "rule"), RULES)
def test_position_tables_of_another_image_size_are_the_publishers(
    name, layout, rule, image_size
):
    settings = {
        "patch_size": 5,
        "num_layers": 1,
        "num_heads": 1,
        "hidden_dim": 4,
        "mlp_dim": 4,
    }
    source = zoo.build(name, backend="torch", image_size=15, **settings)
    state = source.neutral_state()
    table = "encoder.pos_embedding"
    state[table] = generator().standard_normal(state[table].shape).astype(np.float32)
    tokens = torch.from_numpy(state[table])
    if layout:
        (keymap,) = [each for each in source.keymaps if each.name == layout]
        state = keymap.to_layout(state)
    network = zoo.build(name, backend="torch", image_size=image_size, **settings)
    zoo.load(network, state)
    found = network.neutral_state()[table]
    close(found, rule(tokens, found.shape[1]), 1e-5)


def test_the_file_of_hugging_faces_distilled_deit_gives_its_outputs_and_goes_back(
    tmp_path,
):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "intermediate_size": 12,
        "patch_size": 5,
    }
    config = DeiTConfig(**sizes, image_size=15, num_attention_heads=2, num_labels=4)
    theirs = HFDeiT(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "model.safetensors"
    settings = vit.DISTILLED_SMALL | {"eps": 1e-12}
    name = "deit_tiny_distilled_patch16_224"
    network = zoo.build(name, backend="torch", weights=file, **settings).eval()
    x = torch.from_numpy(generator().standard_normal((2, 3, 15, 15)).astype("float32"))
    close(network(x), theirs(x).logits, 1e-5)
    weights.write(tmp_path / "ours.safetensors", network)
    back = tmp_path / "back.safetensors"
    zoo.convert(tmp_path / "ours.safetensors", back, name, "transformers", **settings)
    found, wanted = weights.read(back), weights.read(file)
    assert_equal(found, wanted)


def hugging_faces_dinov2(name, folder):
    """A small network of Hugging Face's, in double precision, and its file."""
    torch.manual_seed(0)
    make_config, make = HF_DINOV2[name]
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "mlp_ratio": 2}
    config = make_config(**sizes, image_size=15, patch_size=5, num_attention_heads=2)
    module = make(config).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    module.save_pretrained(folder)
    return module, folder / "model.safetensors"


DINOV2_SMALL = vit.SMALL | {"mlp_dim": 16}


@pytest.mark.parametrize("image_size", [15, 10, 25])
@pytest.mark.parametrize("name", HF_DINOV2)
def test_hugging_faces_dinov2_gives_its_class_token_for_every_size_of_images(
    name, image_size, backend, tmp_path
):
    """It resamples its table by itself, in single precision."""
    module, file = hugging_faces_dinov2(name, tmp_path)
    settings = DINOV2_SMALL | {"image_size": image_size}
    network = zoo.build(
        name, backend=backend.name, dtype="float64", weights=file, **settings
    ).eval()
    x = generator().standard_normal((2, 3, image_size, image_size))
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).pooler_output.numpy()
    with backend.evaluating():
        came = backend.numpy(network(backend.prepare(x, network)))
    close(came, wanted, 1e-10 if image_size == 15 else 1e-5)


@pytest.mark.parametrize("name", HF_DINOV2)
def test_blocks_of_dinov2_give_maps_of_patches_without_class_and_registers(
    name, tmp_path
):
    module, file = hugging_faces_dinov2(name, tmp_path)
    network = zoo.build(
        name, backend="torch", dtype="float64", weights=file, **DINOV2_SMALL
    )
    x = drawn(2, 3, 15, 15)
    with torch.no_grad():
        wanted = module(x, output_hidden_states=True).hidden_states[1]
        came = network.eval().forward_stages(x)["encoder_layer_0"]
    patches = wanted[:, -9:].permute(0, 2, 1).reshape(2, 8, 3, 3)
    close(came, patches, 1e-10)


@pytest.mark.parametrize("name", HF_DINOV2)
def test_dinov2_goes_back_to_hugging_face(name, tmp_path):
    """Where there are registers, the class token's position has become part of the token."""
    module, file = hugging_faces_dinov2(name, tmp_path)
    network = zoo.build(
        name, backend="torch", dtype="float64", weights=file, **DINOV2_SMALL
    )
    *_, layout = network.keymaps
    state = layout.to_layout(network.neutral_state())
    assert set(state) == set(weights.read(file))
    x = drawn(2, 3, 15, 15)
    with torch.no_grad():
        wanted = module(x).last_hidden_state
        weights.write(file, state)
        came = type(module).from_pretrained(tmp_path, dtype=torch.float64)(x)
    close(came.last_hidden_state, wanted, 1e-10)


SIGLIP = "vit_base_patch16_siglip_224"


def hugging_faces_siglip(folder):
    """A small network of Hugging Face's, over texts too, in double precision, and its file."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = {**sizes, "intermediate_size": 12, "image_size": 15, "patch_size": 5}
    config = SiglipConfig(text_config=sizes, vision_config=vision)
    module = HFSiglip(config).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    module.save_pretrained(folder)
    return module.vision_model, folder / "model.safetensors"


@pytest.mark.parametrize("image_size", [15, 25])
def test_the_file_of_hugging_faces_siglip_gives_the_features_of_pictures(
    image_size, tmp_path
):
    """For images of another size it resamples its table in each pass."""
    module, file = hugging_faces_siglip(tmp_path)
    settings = vit.SMALL | {"image_size": image_size, "approximate": "tanh"}
    network = zoo.build(
        SIGLIP, backend="torch", dtype="float64", weights=file, **settings
    )
    x = drawn(2, 3, image_size, image_size)
    with torch.no_grad():
        wanted = module(x, interpolate_pos_encoding=True).pooler_output
        close(network.eval()(x), wanted, 1e-10)


def test_siglip_goes_back_to_hugging_face(tmp_path):
    module, file = hugging_faces_siglip(tmp_path)
    network = zoo.build(SIGLIP, backend="torch", weights=file, **vit.SMALL)
    state = network.keymaps[1].to_layout(network.neutral_state())
    wanted = module.state_dict()
    assert set(state) == set(wanted)
    for key, value in wanted.items():
        assert_array_equal(state[key], value.float().numpy())


def test_the_file_of_hugging_faces_dinov3_gives_its_class_token_and_goes_back(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = DINOv3Config(
        **sizes, intermediate_size=64, patch_size=5, num_register_tokens=4
    )
    with in_double_precision():
        module = HFDINOv3(config).double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "mask_token" not in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    module.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    settings = dinov3.SMALL | {"qkv_bias": True, "global_pool": "token"}
    network = zoo.build(
        "vit_small_patch16_dinov3",
        backend="torch",
        dtype="float64",
        weights=file,
        **settings,
    )
    x = drawn(2, 3, 20, 10)
    with torch.no_grad(), in_double_precision():
        wanted = module(x).pooler_output
    close(network.eval()(x), wanted, 1e-10)
    (layout,) = network.keymaps
    found = layout.to_layout(network.neutral_state())
    state = weights.read(file)
    assert_equal(found, state)


def test_the_bias_table_of_another_window_is_resampled_and_the_index_is_the_networks_own():
    source = zoo.build(
        "swin_t", backend="torch", dtype="float64", **swin.SMALL
    ).neutral_state()
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
    close(target.adapt_weight(name, source[name], shape), wanted, 1e-12)
    mended, own = target.adapt_state(source), target.neutral_state()
    for key in (key for key in own if key.endswith("relative_position_index")):
        assert_array_equal(mended[key], own[key])


def test_part_of_a_state_gets_no_tables():
    network = zoo.build("swin_t", backend="torch", **swin.SMALL)
    assert list(network.adapt_state({"head.bias": np.zeros(5)})) == ["head.bias"]


# Stages, heads, other numbers of axes
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(
    ("label", "length"), [("efficientnet_b0", 1), ("convnext_tiny", 8)]
)
def test_a_further_axis_that_kernels_do_not_look_along_changes_nothing(
    label, length, dims
):
    """Each kernel stands where it sees the first element alone, and the further axis ends with a
    single one."""
    case = CASES[label]
    narrow, wide = (
        on_torch(case.name, **case.settings, dims=d) for d in (dims, dims + 1)
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
    close(
        wide(torch.from_numpy(x)),
        narrow(torch.from_numpy(x[..., 0].copy())),
        1e-9,
    )


# Bad input
# -----------------------------------------------------------------------------


SHAPES = [
    ("vit_b_16", (1, 3, 20, 15), "15 elements along each spatial axis"),
    ("mixer_s32_224", (1, 3, 20, 20), "15 elements along each spatial axis"),
    ("efficientnet_b0", (1, 3, 15), "features.0.0"),
    (
        "convnext_tiny",
        (1, 3, 15, 7),
        "too small for the stage 'stage2': it needs at least 8",
    ),
    ("convnextv2_tiny", (1, 3, 15, 45), "too small for the stage 'stage4'"),
    ("swin_t", (1, 3, 15, 3), "features.0.0"),
]


def test_inputs_that_do_not_fit_name_the_layer_or_the_stage(subtests):
    for label, shape, message in SHAPES:
        with (
            subtests.test(label, shape=shape),
            pytest.raises(ShapeError, match=message),
        ):
            CASES[label].build("torch").eval()(torch.zeros(shape, dtype=torch.float64))


def test_linear_attention_over_many_places_stays_within_float16():
    """The sums of products over 4,096 places are past the largest number of float16."""
    layer = LinearAttention.on("torch")(8, 4)
    with torch.no_grad():  # of each head 4 rows of queries, of keys and of values
        layer.qkv.conv.weight.view(2, 12, -1)[:, 4:8].mul_(100)
    x = torch.from_numpy(generator().standard_normal((1, 8, 64, 64)).astype("float32"))
    packed = layer.qkv(x)
    _, key, value = torch.chunk(packed.reshape(2, 12, -1), 3, dim=1)
    products = torch.einsum("hdn,hen->hde", value, key.relu())
    assert products.abs().max() > torch.finfo(torch.float16).max
    wanted = layer(x)
    with torch.autocast("cpu", torch.float16):
        came = layer(x)
    close(came, wanted, 0.05)
