"""The autoencoder of latent diffusion models, as MONAI's AutoencoderKL. The noise is an input.

It follows the paper's code in 1, 2 and 3 dimensions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from deliralike.zoo.generative import ddpm, latent_blocks
from deliralike.zoo.generative.diffusion_model_unet import Double
from deliralike.zoo.generative.latent_blocks import (
    Shared,
    SpatialAttention,
    per_level,
)
from deliralike.zoo.generative.vae import check_noise
from deliralike.zoo.inputs import Input
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers

LOG_VARIANCES = (-30.0, 20.0)  # the range that they are kept in


class AutoencoderKL(Model):
    """An autoencoder whose latent pictures are normally distributed.

    Source: Rombach et al. 2022, arXiv 2112.10752, and Pinaya et al. 2022, arXiv 2209.07162. Names,
    order, shapes and start values are those of MONAI's ``AutoencoderKL``.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        num_res_blocks: Residual blocks of each level, or one number for all.
        channels: The width of each level, from the finest to the coarsest; multiples of
            `norm_num_groups`. Each but the last halves the size.
        attention_levels: For each level, whether its residual blocks are followed by attention.
        latent_channels: Channels of the latent pictures.
        norm_num_groups: Groups of the normalisations.
        norm_eps: Their epsilon.
        with_encoder_nonlocal_attn, with_decoder_nonlocal_attn: Whether attention between two
            residual blocks ends the encoder and starts the decoder.
        dims: Number of spatial axes: 1, 2 or 3. (MONAI's ``spatial_dims``.)

    Shapes:
        ``(batch, in_channels, *size)`` and noise of the shape of the latent pictures give a tuple:
        the reconstruction ``(batch, out_channels, *size)``, means and standard deviations, both
        ``(batch, latent_channels, *size / 2 ** (len(channels) - 1))``. Without noise the mean is
        decoded, as MONAI's ``reconstruct`` does. A size that is no such multiple is rounded down.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The noise has another shape, or the input another number of channels (the error
            names ``encoder.blocks.0.conv``).
    """

    stem_paths = ("encoder.blocks.0.conv",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        num_res_blocks: int | Sequence[int] = (2, 2, 2, 2),
        channels: Sequence[int] = (32, 64, 64, 64),
        attention_levels: Sequence[bool] = (False, False, True, True),
        latent_channels: int = 3,
        norm_num_groups: int = 32,
        norm_eps: float = 1e-6,
        with_encoder_nonlocal_attn: bool = True,
        with_decoder_nonlocal_attn: bool = True,
        dims: int = 2,
    ) -> None:
        super().__init__()
        widths, layers, attends = per_level(
            "AutoencoderKL", channels, num_res_blocks, attention_levels
        )
        shared = Shared(dims, norm_num_groups, norm_eps)
        nn = self.nn
        down = [shared.conv(in_channels, widths[0])]
        down += _levels(widths, layers, attends, shared, partial(_halve, nn, dims))
        if with_encoder_nonlocal_attn:
            down += _nonlocal(widths[-1], shared)
        down += _last(nn, widths[-1], latent_channels, shared)
        self.encoder = nn.Sequential({"blocks": nn.Sequential(*down)})
        up = [shared.conv(latent_channels, widths[-1])]
        if with_decoder_nonlocal_attn:
            up += _nonlocal(widths[-1], shared)
        double = partial(Double, shared=shared)
        up += _levels(widths[::-1], layers[::-1], attends[::-1], shared, double)
        up += _last(nn, widths[0], out_channels, shared)
        self.decoder = nn.Sequential({"blocks": nn.Sequential(*up)})
        self.quant_conv_mu = shared.conv(latent_channels, latent_channels, 1)
        self.quant_conv_log_sigma = shared.conv(latent_channels, latent_channels, 1)
        self.post_quant_conv = shared.conv(latent_channels, latent_channels, 1)

    @property
    def head_paths(self):  # type: ignore[override]
        """The decoder's last convolution."""
        return (f"decoder.blocks.{len(self.decoder.blocks) - 1}.conv",)

    def forward(self, x, noise=None):
        stages = self.forward_stages(x, noise)
        return self.decode(stages["latent"]), stages["mean"], stages["deviation"]

    def forward_stages(self, x, noise=None):
        """Return the encoder's output, means and deviations of the latent picture, and a sample."""
        encoded = self.encoder(x)
        mean, deviation = self._distribution(encoded)
        latent = mean
        if noise is not None:
            check_noise(self, noise, mean)
            latent = mean + noise * deviation
        return {
            "encoder": encoded,
            "mean": mean,
            "deviation": deviation,
            "latent": latent,
        }

    def encode(self, x):
        """Return the means and the standard deviations of the latent pictures."""
        return self._distribution(self.encoder(x))

    def decode(self, latent):
        """Return the pictures of latent ones ``(batch, latent_channels, *size)``."""
        return self.decoder(self.post_quant_conv(latent))

    def _distribution(self, encoded):
        nn = self.nn
        log_variance = nn.clamp(self.quant_conv_log_sigma(encoded), *LOG_VARIANCES)
        return self.quant_conv_mu(encoded), nn.exp(log_variance / 2)


class Residual(latent_blocks.Residual):
    """A residual block that reads no time."""

    shortcut = "nin_shortcut"


def _halve(nn: Any, dims: int, channels: int) -> Any:
    return nn.Sequential({"conv": ddpm.Halve(channels, dims)})


def _levels(
    widths: Sequence[int],
    layers: Sequence[int],
    attends: Sequence[bool],
    shared: Shared,
    resize: Callable[[int], Any],
) -> Iterator[Any]:
    """Make the residual blocks of all levels, with attention and changes of the size."""
    before = widths[0]
    for level, width in enumerate(widths):
        for _ in range(layers[level]):
            yield Residual(before, width, shared)
            before = width
            if attends[level]:
                yield SpatialAttention(width, None, shared)
        if level < len(widths) - 1:
            yield resize(width)


def _nonlocal(channels: int, shared: Shared) -> Iterator[Any]:
    """Make two residual blocks with attention between them."""
    yield Residual(channels, channels, shared)
    yield SpatialAttention(channels, None, shared)
    yield Residual(channels, channels, shared)


def _last(
    nn: Any, in_channels: int, out_channels: int, shared: Shared
) -> Iterator[Any]:
    yield shared.norm(nn, in_channels)
    yield shared.conv(in_channels, out_channels)


def _inputs(settings: Mapping[str, Any]) -> list[Any]:
    dims = settings["dims"]
    side = 64
    widths = numbers(settings["channels"], "channels", "AutoencoderKL")
    latent = side // 2 ** (len(widths) - 1)
    picture = (settings["in_channels"], *(side,) * dims)
    return [picture, Input((settings["latent_channels"], *(latent,) * dims))]


register(
    AutoencoderKL,
    name="autoencoder_kl",
    task="generation",
    dims=(1, 2, 3),
    source="Rombach et al. 2022, arXiv 2112.10752; MONAI AutoencoderKL",
    shape=_inputs,
    parameters=1_621_192,
)
