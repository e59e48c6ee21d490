"""What only generative networks have: noise and time as inputs, start values, and training in turns
with a penalty."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.utils.flop_counter import FlopCounterMode

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.errors import SettingError, ShapeError
from deliralike.zoo.generative.ddpm import time_waves
from tests.zoo.case import close, evaluate, scramble
from tests.zoo.cases.generative import (
    CONDITIONED,
    FULL,
    TINY,
    TINY_REFERENCE,
    UNET,
    autoencoder,
    latent_unet,
    unet,
)

# Full sizes
# -----------------------------------------------------------------------------


def full_inputs(name):
    """One sample of the full size on the meta device, as the reference wants it."""
    shapes = {
        "dcgan_generator": [(1, 100, 1, 1)],
        "vae": [(1, 784), (1, 20)],
        "conv_vae": [(1, 3, 64, 64), (1, 128)],
        "autoencoder_kl": [(1, 1, 64, 64)],
    }
    given = shapes.get(name, [(1, *zoo.find(name).input_shape)])
    tensors = [torch.empty(shape, device="meta") for shape in given]
    return (
        [*tensors, torch.zeros(1, dtype=torch.long, device="meta")]
        if name.startswith(("ddpm", "diffusion"))
        else tensors
    )


def test_multiply_adds_are_half_of_the_references_operations(subtests):
    for name, make in FULL.items():
        with torch.device("meta"):
            reference = make().eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            reference(*full_inputs(name))
        with subtests.test(name):
            assert zoo.outline(name).multiply_adds * 2 == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "last"),
    [("dcgan_generator", 12), ("dcgan_discriminator", 11), ("wgan_critic", 11)],
)
def test_start_values_are_those_of_pytorchs_example(name, last):
    network = zoo.build(name, backend="torch", seed=3)
    state = network.neutral_state()
    assert network.head_paths == (f"main.{last}",)
    for index, layer in enumerate(network.main):
        if not hasattr(layer, "weight"):
            continue
        weight, is_norm = state[f"main.{index}.weight"], hasattr(layer, "eps")
        assert weight.mean() == pytest.approx(
            float(is_norm), abs=5 * 0.02 / weight.size**0.5
        )
        assert weight.std() == pytest.approx(0.02, rel=5 / (2 * weight.size) ** 0.5)
        assert not is_norm or not state[f"main.{index}.bias"].any()


# Noise and time
# -----------------------------------------------------------------------------


def test_the_other_settings_of_the_diffusion_network_are_diffusers():
    settings = {"eps": 1e-5}
    reference = unet(
        8,
        2,
        **TINY_REFERENCE,
        norm_eps=1e-5,
    ).double()
    network = zoo.build(
        "ddpm_cifar10", backend="torch", dtype="float64", **TINY | settings
    )
    network.load_neutral_state(scramble(reference))
    x, time = torch.randn(2, 2, 4, 6, dtype=torch.float64), torch.tensor([3, 870])
    assert_allclose(
        network(x, time).detach(),
        reference(x, time).sample.detach(),
        rtol=1e-9,
        atol=1e-10,
    )


MONAI = [
    ("diffusion_model_unet", latent_unet, {"transformer_num_layers": 2, **CONDITIONED}),
    ("diffusion_model_unet", latent_unet, {"num_class_embeds": 3}),
    (
        "diffusion_model_unet",
        latent_unet,
        {"num_res_blocks": (1, 2, 1, 3), "norm_eps": 1e-5},
    ),
    (
        "autoencoder_kl",
        autoencoder,
        {"num_res_blocks": (1, 2, 1, 3), "latent_channels": 4},
    ),
    ("autoencoder_kl", autoencoder, {"with_decoder_nonlocal_attn": False}),
]


def test_names_and_shapes_with_other_settings_are_monais(subtests):
    for name, make, settings in MONAI:
        with torch.device("meta"):
            wanted = make(**settings).state_dict()
        slots = zoo.find(name).on(OUTLINE)(**settings).neutral_slots()
        with subtests.test(name, **settings):
            came = [(key, tuple(slot.shape)) for key, slot in slots.items()]
            assert came == [(key, tuple(value.shape)) for key, value in wanted.items()]


def test_labels_are_the_third_input_of_a_network_without_a_context():
    settings = UNET | {"num_class_embeds": 3}
    network = zoo.build(
        "diffusion_model_unet", backend="torch", dtype="float64", **settings
    )
    x, time = torch.randn(2, 2, 4, 6, dtype=torch.float64), torch.tensor([3, 870])
    labels = torch.tensor([0, 2])
    torch.nn.init.normal_(network.out[2].conv.weight)
    torch.testing.assert_close(
        network(x, time, labels), network(x, time, class_labels=labels)
    )
    with pytest.raises(
        SettingError, match="num_class_embeds is set, so class_labels are wanted"
    ):
        network(x, time)


def test_a_context_needs_a_network_that_attends_to_it():
    network = zoo.build("diffusion_model_unet", backend="torch", **UNET)
    x, time = torch.randn(2, 2, 4, 6), torch.tensor([3, 870])
    with pytest.raises(SettingError, match="build it with with_conditioning=True"):
        network(x, time, torch.randn(2, 3, 5))


SMALL_AUTOENCODERS = {
    "vae": {"latent_size": 3, "in_features": 8, "hidden": 5},
    "conv_vae": {
        "latent_size": 3,
        "in_channels": 1,
        "features": (4, 4),
        "image_size": 8,
    },
    "autoencoder_kl": {
        "channels": (2,),
        "attention_levels": (False,),
        "num_res_blocks": 1,
    }
    | {"norm_num_groups": 1, "dims": 1},
}


@pytest.mark.parametrize("name", SMALL_AUTOENCODERS)
def test_without_noise_the_mean_is_decoded(name, backend):
    settings = SMALL_AUTOENCODERS[name]
    network = zoo.build(name, backend=backend.name, dtype="float64", **settings)
    x, noise = zoo.find(name).sample(2, dtype="float64", **settings)
    still, zero, drawn = (
        list(evaluate(backend, network, inputs).values())
        for inputs in ((x,), (x, noise * 0.0), (x, noise))
    )
    for mine, other in zip(still, zero, strict=True):
        close(mine, other, 1e-12)
    assert np.abs(drawn[0] - still[0]).max() > 1e-6
    for mine, other in zip(still[1:], drawn[1:], strict=True):
        close(mine, other, 1e-12)


# Bad input
# -----------------------------------------------------------------------------


def test_time_steps_are_counted_beyond_what_16_bits_hold(backend):
    """bfloat16 has no whole number between 256 and 258, and the sine of 999 is not that of 1000."""
    steps = np.array([3, 257, 999])
    angles = steps[:, None] * 10000.0 ** (-np.arange(4) / 4)
    wanted = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    model = zoo.build("ddpm_small", backend=backend.name)
    for dtype, near in (("float16", 1e-3), ("bfloat16", 1e-2), ("float64", 1e-9)):
        if dtype not in backend.dtypes:
            continue
        like = backend.array(np.zeros(1), dtype)
        waves = time_waves(model, backend.array(steps), 8, like)
        assert str(waves.dtype).endswith(dtype)
        if dtype != "float64":
            waves = model.nn.cast(waves, "float32")
        found = backend.numpy(waves)
        assert_allclose(found, wanted, atol=near)


def test_one_wave_alone_has_the_frequency_one(backend):
    model = zoo.build("mlp", in_features=1, num_classes=1, backend=backend)
    like = backend.array(np.zeros(1, np.float32))
    waves = time_waves(model, backend.array(np.array([2])), 2, like, shift=1.0)
    wanted = [[np.cos(2.0), np.sin(2.0)]]
    assert_allclose(backend.numpy(waves), wanted, rtol=1e-6)


def test_a_context_without_a_batch_is_refused(backend):
    network = zoo.build("diffusion_model_unet", backend=backend.name, **CONDITIONED)
    width = CONDITIONED["cross_attention_dim"]
    x, steps, _, labels = zoo.find("diffusion_model_unet").sample(1, **CONDITIONED)
    context = np.ones((3, width), x.dtype)
    batch = network.backend.prepare((x, steps, context, labels), network)
    with pytest.raises(ShapeError, match=r"shape \(3, .*wanted a context \(batch, tok"):
        network(*batch)


def test_time_steps_are_whole_numbers():
    network = zoo.build("ddpm_cifar10", backend="torch", **TINY)
    with pytest.raises(
        SettingError, match=r"DiffusionUNet: time steps: got an array of float32"
    ):
        network(torch.zeros(1, 2, 4, 4), torch.zeros(1))


def test_a_perceptron_gives_scores_instead_of_probabilities_on_request():
    settings = {"in_features": 8, "hidden": 5, "latent_size": 3}
    pictures, noise = map(torch.from_numpy, zoo.find("vae").sample(2, **settings))
    with_sigmoid, scores = (
        zoo.build("vae", backend="torch", sigmoid=on, **settings)
        for on in (True, False)
    )
    torch.testing.assert_close(
        torch.sigmoid(scores(pictures, noise)[0]), with_sigmoid(pictures, noise)[0]
    )
