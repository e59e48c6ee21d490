"""What only Segment Anything's encoder has: files of whole networks, tables of positions."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from deliralike import zoo
from tests.references import Later
from tests.zoo.case import arrays_of, scramble
from tests.zoo.cases.sam import SMALL, reference

transformers = Later("transformers")
timm_names = Later("timm.models.vision_transformer_sam.checkpoint_filter_fn")

NETWORK = SMALL | {"image_size": 9, "in_channels": 3}


def hugging_face():
    """A small ``SamModel`` in double precision, away from its start values."""
    vision = transformers.SamVisionConfig(
        hidden_size=6,
        output_channels=5,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=9,
        patch_size=3,
        window_size=2,
        global_attn_indexes=[1],
        mlp_dim=9,
    )
    decoder = {
        "hidden_size": 8,
        "mlp_dim": 8,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 8,
    }
    prompts = {
        "hidden_size": 8,
        "image_size": 9,
        "patch_size": 3,
        "mask_input_channels": 4,
    }
    config = transformers.SamConfig(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
    )
    torch.manual_seed(0)
    network = transformers.SamModel(config).double().eval()
    for name, value in network.vision_encoder.named_parameters():
        if "pos" in name:
            torch.nn.init.normal_(value)
    scramble(network)
    return network


def test_a_whole_file_of_hugging_face_gives_its_encoders_output():
    theirs = hugging_face()
    network = zoo.build(
        "samvit_base_patch16", backend="torch", dtype="float64", **NETWORK
    )
    report = zoo.load(network, arrays_of(theirs))
    assert not (report.missing or report.unexpected)
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    with torch.no_grad():
        wanted = theirs.vision_encoder(x).last_hidden_state
    torch.testing.assert_close(network(x), wanted, rtol=1e-9, atol=1e-9)


def test_the_papers_own_names_are_those_that_timm_reads():
    network = zoo.build("samvit_base_patch16", backend="torch", **NETWORK)
    state = network.neutral_state()
    keymap = next(
        keymap for keymap in network.keymaps if keymap.name == "segment_anything"
    )
    theirs = keymap.to_layout(state)
    assert list(timm_names(theirs, None)) == list(state)
    assert "image_encoder.blocks.0.mlp.lin1.weight" in theirs
    other = zoo.build("samvit_base_patch16", backend="torch", seed=1, **NETWORK)
    zoo.load(other, theirs | {"mask_decoder.iou_token.weight": np.ones((1, 8))})
    np.testing.assert_equal(other.neutral_state(), state)


def test_positions_for_another_image_size_are_interpolated():
    source = reference(9, 3, **SMALL).state_dict()
    network = zoo.build(
        "samvit_base_patch16", backend="torch", **NETWORK | {"image_size": 15}
    )
    zoo.load(network, {name: value.numpy() for name, value in source.items()})
    came = network.state_dict()
    places = interpolate(
        source["pos_embed"].permute(0, 3, 1, 2), size=5, mode="bicubic"
    )
    torch.testing.assert_close(came["pos_embed"], places.permute(0, 2, 3, 1))
    for name in ("blocks.1.attn.rel_pos_h", "blocks.1.attn.rel_pos_w"):
        wanted = interpolate(source[name].T[None], size=9, mode="linear")[0].T
        torch.testing.assert_close(came[name], wanted)
    inside = "blocks.0.attn.rel_pos_h"  # of windows, which are as large as before
    torch.testing.assert_close(came[inside], source[inside], rtol=0, atol=0)
