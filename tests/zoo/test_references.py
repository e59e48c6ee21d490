"""With the reference's weights, our networks give the reference's numbers on PyTorch, to 1e-9 in
double precision.

That the other backends give what PyTorch gives is asked in `test_models`.
"""

import csv
import hashlib
from functools import cache
from pathlib import Path

import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.zoo.case import (
    assert_same,
    assert_same_distributions,
    built,
    computed,
    ours,
    theirs,
)
from tests.zoo.cases import CASES, FULL, t5

LABELS = [case.as_parameter() for case in CASES.values() if case.reference is not None]
TOLERANCE = 1e-9
SHAPES = Path(__file__).with_name("full_size.csv")


@pytest.mark.parametrize("label", LABELS)
def test_names_order_and_shapes_are_the_references(label):
    slots = built(label, "torch").neutral_slots()
    came = [(name, tuple(slot.shape)) for name, slot in slots.items()]
    assert came == [(name, value.shape) for name, value in theirs(label)[1].items()]


@pytest.mark.parametrize("label", LABELS)
def test_outputs_gradients_and_state_are_the_references(label):
    assert_same(ours(label), theirs(label)[0], TOLERANCE)


@pytest.mark.parametrize(
    "label",
    [
        "efficientvit_b0",
        "sam2_hiera_tiny",
        "mednext_s",
        "whisper_tiny",
        "mamba2_130m",
        "mamba2_130m masked",
        "vit_base_patch16_siglip_224",
        "vit_small_patch16_dinov3 with a head",
    ],
)
def test_outputs_and_gradients_are_the_references_on_every_backend(label, backend):
    """Of networks whose class `test_models` does not compute on JAX."""
    assert_same(computed(label, backend.name), theirs(label)[0], 1e-10)


# Their references start otherwise than the published ones: encoders of VGG and nnU-Nets with
# PyTorch's own values, the Inceptions without the slow truncated ones, signals as Keras has them.
OTHERWISE = {
    *(
        "vgg11",
        "vgg11_bn",
        "fcn_resnet50",
        "deeplabv3_resnet50",
        "encoder_unet",
        "fpn",
    ),
    *(
        "encoder_unet of two blocks",
        "unetplusplus",
        "nnunet",
        "nnunet of two stages",
        "nnunet_resenc_m",
    ),
    *(
        "googlenet",
        "inception_v3",
        "inception_time",
        "mnasnet0_5",
    ),
    *(
        "squeezenet1_0",
        "tcn",
        "dcgan_generator",
        "dcgan_discriminator",
        "wgan_gp_critic",
    ),
    *(
        "diffusion_model_unet",
        "diffusion_model_unet conditioned",
        "samvit_base_patch16",
    ),
    *("deit_tiny_distilled_patch16_224", "qwen2_5_0_5b", "resnet10 with MONAI's stem"),
    *("vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"),
    *("vit_base_patch16_siglip_224", "vit_small_patch16_dinov3"),
    "sam2_hiera_tiny",
    *("vit_small_patch16_dinov3 with a head", "mobilenetv4_conv_small"),
}
DRAWN_THERE = (
    "heads.head.weight",
    "head.weight",
    "head.fc.weight",
)  # these start at zero
OF_THE_PAPER = ("embedding.weight", "positions.pe")  # of transformer_classifier
# More numbers than cases have, where a few hundred tell too little.
DECODER = {"hidden_size": 48, "intermediate_size": 96, "vocab_size": 50}
WIDE = {
    "gpt2": {"n_embd": 48, "vocab_size": 50},
    "llama_3_2_1b": DECODER,
    "qwen3_0_6b": DECODER,
    "flan_t5_small": {"d_model": 48, "d_ff": 96, "vocab_size": 50, **t5._GATED},
    "bert_base_uncased": {"hidden_size": 48, "intermediate_size": 96},
    "transformer_classifier": {"d_model": 48, "dim_feedforward": 96},
    "lstm_classifier": {"hidden_size": 40, "in_features": 30},
    "clip_vit_b_32": {
        "vision_hidden_size": 64,
        "text_hidden_size": 48,
        "vocab_size": 500,
    }
    | {"vision_intermediate_size": 90, "text_intermediate_size": 70, "patch_size": 2},
}


def test_exemptions_are_of_cases():
    labels = {case.values[0] for case in LABELS}
    assert labels >= OTHERWISE


@pytest.mark.parametrize(
    "label", [case for case in LABELS if case.values[0] not in OTHERWISE]
)
def test_start_values_have_the_references_distributions(label):
    case, wide = CASES[label], WIDE.get(label)
    settings, make = {**case.settings, **(wide or {})}, case.reference
    torch.manual_seed(4)
    reference = make.func(*make.args, **settings) if wide else make()
    state = zoo.build(case.name, backend="torch", **settings).neutral_state()
    others = {name for name in DRAWN_THERE if name in state and not state[name].any()}
    if label.startswith("transformer_c"):
        others |= {*OF_THE_PAPER}
    assert_same_distributions(state, reference, others)


# At full size
# -----------------------------------------------------------------------------


@cache
def whole(name):
    """The whole reference, on PyTorch's meta device, where nothing is computed."""
    with torch.device("meta"):
        return FULL[name]()


def reference_shapes(name):
    """Names and shapes of the whole reference."""
    return [
        (key, tuple(value.shape)) for key, value in whole(name).state_dict().items()
    ]


def digest(shapes):
    """A short text that tells one list of names and shapes from another."""
    return hashlib.sha256(
        "\n".join(f"{name} {list(shape)}" for name, shape in shapes).encode()
    ).hexdigest()[:16]


def stored():
    """The digest of each reference; ``python -m tests.zoo.test_references`` writes them again."""
    with SHAPES.open(newline="") as file:
        return {row["name"]: row["digest"] for row in csv.DictReader(file)}


def test_names_order_and_shapes_are_the_references_at_full_size():
    """Against what the references were once, so that few of them are built."""
    known = stored()
    assert set(known) == set(FULL)
    differing = []
    for name, wanted in known.items():
        slots = zoo.find(name).on(OUTLINE)().neutral_slots()
        if digest((key, tuple(slot.shape)) for key, slot in slots.items()) != wanted:
            differing.append(name)
    assert not differing, (
        "test_what_is_stored_of_the_references tells in what they differ"
    )


def first_of_each_class():
    """One name of each class of networks that has a whole reference."""
    first = {}
    for name in FULL:
        first.setdefault(zoo.find(name).network, name)
    return list(first.values())


@pytest.mark.parametrize("name", first_of_each_class())
def test_what_is_stored_of_the_references(name):
    wanted = reference_shapes(name)
    slots = zoo.find(name).on(OUTLINE)().neutral_slots()
    assert [(key, tuple(slot.shape)) for key, slot in slots.items()] == wanted
    assert stored()[name] == digest(wanted)


LAYERS = ("Dropout", "Dropout2d", "DropPath", "StochasticDepth")


def rates(blocks):
    """The rates of layers of dropout, but for those that are off."""
    found = [
        getattr(block, "p", 0.0) for block in blocks if type(block).__name__ in LAYERS
    ]
    return {round(rate, 9) for rate in found if rate}


@pytest.mark.parametrize("name", first_of_each_class())
def test_rates_of_dropout_are_those_of_the_reference(name):
    """Cases have no rates: masks differ between libraries."""
    wanted = rates(whole(name).modules())
    came = rates(block for _, block in zoo.find(name).on(OUTLINE)().named_blocks())
    assert came <= wanted  # it has some more where no shortcut is
    assert bool(came) == bool(wanted)


if __name__ == "__main__":
    with SHAPES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "digest"])
        writer.writerows(
            [name, digest(reference_shapes(name))] for name in sorted(FULL)
        )
