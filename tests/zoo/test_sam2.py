"""What only the encoder of Segment Anything 2 has: files of whole networks, and of timm's trunk."""

import numpy as np
import torch

from deliralike import zoo
from tests.references import Later
from tests.zoo.case import arrays_of, close, scramble
from tests.zoo.cases.llama import in_double_precision
from tests.zoo.cases.sam2 import SMALL, Encoder

transformers = Later("transformers")
HieraDet = Later("timm.models.hieradet_sam2.HieraDet")
timm_names = Later("timm.models.hieradet_sam2.checkpoint_filter_fn")

NETWORK = SMALL | {"in_channels": 3, "neck_chans": 32}
PICTURES = np.random.default_rng(0).standard_normal((2, 3, 64, 32))


def timms():
    """The trunk of the same size as timm builds it, away from its start values."""
    torch.manual_seed(0)
    module = HieraDet(
        embed_dim=6,
        num_heads=2,
        stages=NETWORK["layers"],
        window_spec=NETWORK["window_size"],
        global_att_blocks=(4,),
        global_pos_size=(3, 3),
        num_classes=0,
    )
    scramble(module.double().eval())
    return module


def keymap(network, name):
    (found,) = [keymap for keymap in network.keymaps if keymap.name == name]
    return found


def test_a_whole_file_of_hugging_face_gives_its_encoders_maps_and_goes_back():
    torch.manual_seed(0)
    vision = Encoder(**NETWORK).vision_encoder.config
    prompts = {"hidden_size": 32, "image_size": 64, "mask_input_channels": 4}
    decoder = {"hidden_size": 32, "mlp_dim": 8, "num_attention_heads": 2}
    config = transformers.Sam2Config(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
    )
    theirs = transformers.Sam2Model(config).double().eval()
    for name, value in theirs.named_parameters():
        if "pos_embed" in name:
            torch.nn.init.normal_(value)
    state = scramble(theirs)
    network = zoo.build("sam2_hiera_tiny", backend="torch", dtype="float64", **NETWORK)
    report = zoo.load(network, state)
    assert report.complete
    x = torch.from_numpy(PICTURES)
    with torch.no_grad(), in_double_precision():
        wanted = theirs.vision_encoder(x).fpn_hidden_states
    for came, one in zip(network.eval()(x), wanted, strict=True):
        close(came, one, 1e-10)
    back = keymap(network, "transformers").to_layout(network.neutral_state())
    vision = {key: value for key, value in state.items() if key.startswith("vision_")}
    np.testing.assert_equal(back, vision)


def test_the_papers_own_names_are_those_that_timm_reads():
    network = zoo.build("sam2_hiera_tiny", backend="torch", **NETWORK)
    state = network.neutral_state()
    theirs = keymap(network, "segment_anything_2").to_layout(state)
    trunk = timm_names(theirs, prefix="image_encoder.trunk.")
    assert set(trunk) == {name for name in state if not name.startswith("neck.")}
    assert theirs["image_encoder.neck.convs.3.conv.bias"] is state["neck.3.bias"]
    other = zoo.build("sam2_hiera_tiny", backend="torch", seed=1, **NETWORK)
    zoo.load(other, theirs | {"memory_encoder.out_proj.bias": np.ones(8)})
    np.testing.assert_equal(other.neutral_state(), state)


def test_timms_file_has_the_trunk_alone_and_gives_its_stages():
    theirs = timms()
    settings = NETWORK | {"neck_chans": 0}
    network = zoo.build("sam2_hiera_tiny", backend="torch", dtype="float64", **settings)
    state = arrays_of(theirs)
    assert zoo.load(network, state).complete
    x = torch.from_numpy(PICTURES)
    with torch.no_grad():
        wanted = theirs.forward_intermediates(x, intermediates_only=True)
        for came, one in zip(network.eval()(x), wanted, strict=True):
            close(came, one, 1e-10)
