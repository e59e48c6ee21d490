"""Adversarial networks and variational autoencoders beside plain PyTorch, the diffusion U-Net
beside diffusers', and the networks of latent diffusion beside MONAI's.

DCGAN and the perceptron are those of PyTorch's examples, the convolutional autoencoder is
PyTorch-VAE's; none of them can be installed, so they are written down here.
"""

from functools import partial
from unittest import mock

import torch
from torch import nn

from deliralike.zoo.inputs import Input
from tests.references import Later
from tests.zoo.case import Case

UNet2DModel = Later("diffusers.UNet2DModel")
monai_unet = Later("monai.networks.nets.diffusion_model_unet")
AutoencoderKL = Later("monai.networks.nets.AutoencoderKL")


class Main(nn.Module):
    """Layers under the name ``main``."""

    def __init__(self, *layers):
        super().__init__()
        self.main = nn.Sequential(*layers)

    def forward(self, x):
        return self.main(x)


def generator(latent=100, width=64, out=3, levels=4):
    layers = [
        nn.ConvTranspose2d(latent, width * 2 ** (levels - 1), 4, 1, 0, bias=False)
    ]
    for level in reversed(range(levels)):
        channels = width * 2**level
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [
            nn.ConvTranspose2d(
                channels, channels // 2 if level else out, 4, 2, 1, bias=False
            )
        ]
    return Main(*layers, nn.Tanh())


def discriminator(
    channels=3, width=64, levels=4, norm=nn.BatchNorm2d, bias=False, scores=1
):
    layers = [nn.Conv2d(channels, width, 4, 2, 1, bias=bias), nn.LeakyReLU(0.2)]
    for level in range(1, levels):
        out = width * 2**level
        layers += [
            nn.Conv2d(out // 2, out, 4, 2, 1, bias=bias),
            norm(out),
            nn.LeakyReLU(0.2),
        ]
    return Main(
        *layers, nn.Conv2d(width * 2 ** (levels - 1), scores, 4, 1, 0, bias=bias)
    )


class Perceptron(nn.Module):
    """PyTorch's example with its random numbers as an input."""

    def __init__(self, length=784, hidden=400, latent=20):
        super().__init__()
        self.fc1 = nn.Linear(length, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, length)

    def forward(self, x, noise):
        hidden = self.fc1(x).relu()
        mu, logvar = self.fc21(hidden), self.fc22(hidden)
        return (
            self.fc4(self.fc3(mu + noise * torch.exp(0.5 * logvar)).relu()).sigmoid(),
            mu,
            logvar,
        )


class Vanilla(nn.Module):
    """PyTorch-VAE's ``VanillaVAE`` with its random numbers as an input, for any size."""

    def __init__(
        self, channels=3, latent=128, hidden=(32, 64, 128, 256, 512), coarsest=2
    ):
        super().__init__()
        self.grid = (hidden[-1], coarsest, coarsest)
        flat = hidden[-1] * coarsest**2
        ins = (channels, *hidden[:-1])
        self.encoder = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU()
                )
                for a, b in zip(ins, hidden, strict=True)
            )
        )
        self.fc_mu = nn.Linear(flat, latent)
        self.fc_var = nn.Linear(flat, latent)
        self.decoder_input = nn.Linear(latent, flat)
        back = hidden[::-1]
        self.decoder = nn.Sequential(
            *(
                nn.Sequential(
                    nn.ConvTranspose2d(a, b, 3, 2, 1, 1),
                    nn.BatchNorm2d(b),
                    nn.LeakyReLU(),
                )
                for a, b in zip(back[:-1], back[1:], strict=True)
            )
        )
        last = hidden[0]
        self.final_layer = nn.Sequential(
            nn.ConvTranspose2d(last, last, 3, 2, 1, 1),
            nn.BatchNorm2d(last),
            nn.LeakyReLU(),
            nn.Conv2d(last, channels, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, x, noise):
        found = self.encoder(x).flatten(1)
        mu, logvar = self.fc_mu(found), self.fc_var(found)
        grid = self.decoder_input(mu + noise * torch.exp(0.5 * logvar)).view(
            -1, *self.grid
        )
        return self.final_layer(self.decoder(grid)), mu, logvar


class Waves(nn.Module):
    """Diffusers' embedding of time steps in double precision; its own rounds to single precision in
    any network."""

    def __init__(self, width, flip, shift):
        super().__init__()
        self.width, self.flip, self.shift = width, flip, shift

    def forward(self, time):
        half = self.width // 2
        angles = time[:, None].double() * 1e4 ** (
            -torch.arange(half, dtype=torch.float64) / (half - self.shift)
        )
        waves = [angles.sin(), angles.cos()]
        return torch.cat(waves[::-1] if self.flip else waves, 1)


def unet(
    size=32,
    channels=3,
    features=(128, 256, 256, 256),
    attention=(0, 1, 0, 0),
    layers=2,
    groups=32,
    exact=False,
    **settings,
):
    """Diffusers' network with the settings of google/ddpm-cifar10-32, or others; `exact` in double
    precision."""
    chosen = {
        "downsample_padding": 0,
        "flip_sin_to_cos": False,
        "freq_shift": 1,
        "norm_eps": 1e-6,
        "attention_head_dim": None,
    } | settings
    network = UNet2DModel(
        sample_size=size,
        in_channels=channels,
        out_channels=channels,
        block_out_channels=features,
        down_block_types=tuple(
            "AttnDownBlock2D" if attends else "DownBlock2D" for attends in attention
        ),
        up_block_types=tuple(
            "AttnUpBlock2D" if attends else "UpBlock2D"
            for attends in reversed(attention)
        ),
        layers_per_block=layers,
        norm_num_groups=groups,
        **chosen,
    )
    if exact:
        network.time_proj = Waves(
            features[0], chosen["flip_sin_to_cos"], chosen["freq_shift"]
        )
    return network


def sample(network, *inputs):
    return network(*inputs).sample


def latent_unet(spatial_dims=2, in_channels=1, out_channels=1, **settings):
    """MONAI's network; what starts at zero there gets other values, so that gradients reach it."""
    network = monai_unet.DiffusionModelUNet(
        spatial_dims, in_channels, out_channels, **settings
    )
    for name, value in network.named_parameters():
        if name.endswith("weight") and value.ndim > 1 and not value.is_meta:
            torch.nn.init.normal_(value, std=0.2)
    return network


def noise_of(network, x, time, context=None, labels=None):
    """MONAI's output with its embedding of time in double precision."""
    width = network.block_out_channels[0]
    with mock.patch.object(
        monai_unet.found(),
        "get_timestep_embedding",
        lambda time, _: Waves(width, True, 0)(time),
    ):
        return network(x, time, context, labels)


def autoencoder(spatial_dims=2, **settings):
    return AutoencoderKL(spatial_dims, **settings)


def reconstructed(network, x, noise):
    """MONAI's outputs with its random numbers as an input."""
    mean, deviation = network.encode(x)
    return network.decode(mean + noise * deviation), mean, deviation


SMALL = {"features": (32, 64, 64), "attention": (0, 0, 1), "layers": 1, "groups": 8}
CELEBA = {
    "size": 256,
    "features": (128, 128, 256, 256, 512, 512),
    "attention": (0, 0, 0, 0, 1, 0),
}
FULL = {
    "dcgan_generator": generator,
    "dcgan_discriminator": discriminator,
    "wgan_critic": discriminator,
    "wgan_gp_critic": partial(discriminator, norm=partial(nn.GroupNorm, 1), bias=True),
    "vae": Perceptron,
    "conv_vae": Vanilla,
    "ddpm_cifar10": unet,
    "ddpm_celebahq": partial(unet, **CELEBA),
    "ddpm_small": partial(unet, 28, 1, **SMALL),
    "diffusion_model_unet": latent_unet,
    "autoencoder_kl": autoencoder,
}

TINY = {
    "features": (8, 12),
    "attention": (False, True),
    "layers": 1,
    "num_groups": 4,
    "in_channels": 2,
    "out_channels": 2,
}
TINY_REFERENCE = {
    "features": (8, 12),
    "attention": (0, 1),
    "layers": 1,
    "groups": 4,
    "exact": True,
}
PICTURE, TIME = (2, 4, 6), Input((), below=1000)

LATENT = {"in_channels": 2, "out_channels": 3, "channels": (4, 6), "norm_num_groups": 2}
UNET = LATENT | {
    "attention_levels": (False, True),
    "num_res_blocks": 1,
    "num_head_channels": 3,
}
CONDITIONED = {
    "with_conditioning": True,
    "cross_attention_dim": 5,
    "num_class_embeds": 4,
}
AUTOENCODER = LATENT | {"attention_levels": (False, True), "num_res_blocks": 1}
WITHOUT_ATTENTION = {
    "attention_levels": (False, False),
    "num_res_blocks": 1,
    "with_encoder_nonlocal_attn": False,
    "latent_channels": 1,
}

CASES = [
    Case(
        "dcgan_generator",
        {"latent_size": 7, "width": 4, "out_channels": 2, "image_size": 16},
        batch=3,
        reference=partial(generator, 7, 4, 2, 2),
        call=lambda net, noise: net(noise[:, :, None, None]),
    ),
    Case(
        "dcgan_generator",
        {"latent_size": 7, "width": 3, "image_size": 8, "dims": 3},
        of="in 3d",
    ),
    Case(
        "dcgan_discriminator",
        {"in_channels": 2, "width": 4, "image_size": 16},
        batch=3,
        reference=partial(discriminator, 2, 4, 2),
        call=lambda net, x: net(x).view(-1),
    ),
    Case(
        "wgan_gp_critic",
        {"in_channels": 2, "width": 4, "image_size": 16, "num_classes": 2},
        batch=3,
        reference=partial(discriminator, 2, 4, 2, partial(nn.GroupNorm, 1), True, 2),
        call=lambda net, x: net(x).flatten(1),
    ),
    Case(
        "wgan_critic",
        {
            "in_channels": 2,
            "width": 4,
            "image_size": 16,
            "norm": "layer",
            "num_classes": 0,
        },
        batch=3,
        of="headless",
        covers=("wgan_critic", "wgan_gp_critic"),
        zero=("main.[!24]*",),
        reference=None,
    ),
    Case(
        "wgan_critic",
        {"width": 3, "image_size": 16, "norm": "batch", "dims": 1},
        of="in 1d",
        batch=3,
    ),
    Case(
        "vae",
        {"in_features": 13, "hidden": 9, "latent_size": 4},
        batch=3,
        reference=partial(Perceptron, 13, 9, 4),
    ),
    Case(
        "conv_vae",
        {"in_channels": 2, "latent_size": 5, "features": (4, 6), "image_size": 12},
        batch=3,
        zero=("*coder.?.0.bias", "final_layer.0.bias"),
        reference=partial(Vanilla, 2, 5, (4, 6), 3),
    ),
    Case(
        "ddpm_cifar10",
        TINY,
        [PICTURE, TIME],
        covers=("ddpm_cifar10", "ddpm_celebahq", "ddpm_small"),
        reference=partial(unet, 8, 2, **TINY_REFERENCE),
        call=sample,
        zero=("*to_k.bias",),
    ),
    Case(
        "diffusion_model_unet",
        UNET,
        [PICTURE, TIME],
        reference=partial(latent_unet, **UNET),
        call=noise_of,
        zero=("*to_k.bias",),
    ),
    Case(
        "diffusion_model_unet",
        UNET | CONDITIONED | {"num_head_channels": (1, 2), "dims": 3},
        [(2, 4, 2, 6), TIME, (3, 5), Input((), below=4)],
        of="conditioned",
        reference=partial(
            latent_unet,
            3,
            **UNET | CONDITIONED | {"num_head_channels": (1, 2)},
        ),
        call=noise_of,
    ),
    Case(
        "autoencoder_kl",
        AUTOENCODER,
        [(2, 7, 6), (3, 3, 3)],
        reference=partial(autoencoder, **AUTOENCODER),
        call=reconstructed,
        zero=("*to_k.bias",),
    ),
    Case(
        "autoencoder_kl",
        LATENT | WITHOUT_ATTENTION | {"dims": 3},
        [(2, 4, 6, 2), (1, 2, 3, 1)],
        of="in 3d",
        reference=partial(autoencoder, 3, **LATENT | WITHOUT_ATTENTION),
        call=reconstructed,
        zero=("*.to_k.bias",),
    ),
]
