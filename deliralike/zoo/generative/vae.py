"""Variational autoencoders: a perceptron and a convolutional one. The noise is an input.

Unlike the paper the perceptron has ReLU instead of tanh and wider layers; the convolutional one is
a later, common form.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.zoo.blocks import by_dims, has_side, images_of_size, in_turn
from deliralike.zoo.inputs import Input
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class VAE(Model):
    """A perceptron that encodes to a normal distribution, and decodes a sample of it.

    Source: Kingma and Welling 2013, arXiv 1312.6114; names, order and start values are those of
    PyTorch's example (``fc1``, ``fc21``, ``fc22``, ``fc3``, ``fc4``). Train it with `kl_gaussian`
    and a loss of the reconstruction.

    Args:
        in_features: Length of the input, and of the reconstruction.
        hidden: Width of both hidden layers.
        latent_size: Length of the latent vector.
        sigmoid: Whether the reconstruction lies between 0 and 1, as in the example; if not, it is
            scores for `bce_with_logits`.

    Shapes:
        ``(batch, in_features)`` and noise ``(batch, latent_size)`` give a tuple: the reconstruction
        ``(batch, in_features)``, the means and the logarithms of the variances,
        ``(batch, latent_size)``. Inputs with more axes are flattened. Without noise the mean is
        decoded.
    """

    stem_paths = ("fc1",)
    head_paths = ("fc4",)
    outputs = "in_features"

    def __init__(
        self,
        in_features: int = 784,
        hidden: int = 400,
        latent_size: int = 20,
        sigmoid: bool = True,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.sigmoid = bool(sigmoid)
        self.fc1 = nn.Linear(in_features, hidden)
        self.fc21 = nn.Linear(hidden, latent_size)
        self.fc22 = nn.Linear(hidden, latent_size)
        self.fc3 = nn.Linear(latent_size, hidden)
        self.fc4 = nn.Linear(hidden, in_features)

    def forward(self, x, noise=None):
        stages = self.forward_stages(x, noise)
        y = self.fc4(stages["decoder"])  # (batch, in_features)
        if self.sigmoid:
            y = self.nn.sigmoid(y)
        return y, stages["mu"], stages["logvar"]

    def forward_stages(self, x, noise=None):
        """Return the hidden layers, and the latent distribution with a sample between them."""
        nn = self.nn
        hidden = nn.relu(self.fc1(nn.flatten(x)))
        mu = self.fc21(hidden)
        logvar = self.fc22(hidden)
        latent = sampled(self, mu, logvar, noise)
        return {
            "encoder": hidden,
            "mu": mu,
            "logvar": logvar,
            "latent": latent,
            "decoder": nn.relu(self.fc3(latent)),
        }


class ConvVAE(Model):
    """A convolutional variational autoencoder for pictures with values from -1 to 1.

    Source: Kingma and Welling 2013, arXiv 1312.6114; structure, names and start values are those of
    ``VanillaVAE`` in the collection PyTorch-VAE (``encoder.N``, ``fc_mu``, ``fc_var``,
    ``decoder_input``, ``decoder.N`` …).

    Args:
        in_channels: Channels of the picture, and of the reconstruction.
        latent_size: Length of the latent vector.
        features: The width of each level, from the finest to the coarsest; each halves the size.
        image_size: The picture's size along each axis, a multiple of ``2 ** len(features)``.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *image_size)`` and noise ``(batch, latent_size)`` give a tuple: the
        reconstruction, the means and the logarithms of the variances, ``(batch, latent_size)``.
        Without noise the mean is decoded.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The picture has another size or (the error names ``encoder.0.0``) number of
            channels.
    """

    stem_paths = ("encoder.0.0",)
    head_paths = ("final_layer.3",)
    outputs = "in_channels"

    def __init__(
        self,
        in_channels: int = 3,
        latent_size: int = 128,
        features: Sequence[int] = (32, 64, 128, 256, 512),
        image_size: int = 64,
        dims: int = 2,
    ) -> None:
        super().__init__()
        widths = numbers(features, "features", "ConvVAE")
        nn = self.nn
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        self.image_size = image_size
        self.dims = dims
        self.coarsest = _coarsest(image_size, len(widths))
        flat = widths[-1] * self.coarsest**dims
        encoder = []
        for before, after in zip((in_channels, *widths), widths, strict=False):
            layers = conv(before, after, 3, 2, 1), norm(after), nn.LeakyReLU()
            encoder.append(nn.Sequential(*layers))
        self.encoder = nn.Sequential(*encoder)
        self.fc_mu = nn.Linear(flat, latent_size)
        self.fc_var = nn.Linear(flat, latent_size)
        self.decoder_input = nn.Linear(latent_size, flat)
        decoder = []
        for before, after in pairwise(reversed(widths)):
            decoder.append(nn.Sequential(*_doubling(nn, before, after, dims)))
        self.decoder = nn.Sequential(*decoder)
        self.final_layer = nn.Sequential(
            *_doubling(nn, widths[0], widths[0], dims),
            conv(widths[0], in_channels, 3, padding=1),
            nn.Tanh(),
        )
        self.width = widths[-1]

    def forward(self, x, noise=None):
        stages = self.forward_stages(x, noise)
        last = next(reversed(stages.values()))
        return self.final_layer(last), stages["mu"], stages["logvar"]

    def forward_stages(self, x, noise=None):
        """Return the levels of the encoder and the decoder, and the distribution between them."""
        nn = self.nn
        has_side(self, x, self.image_size)
        stages = in_turn(
            x, {f"encoder{n}": block for n, block in enumerate(self.encoder)}
        )
        flat = nn.flatten(next(reversed(stages.values())))
        mu = self.fc_mu(flat)
        logvar = self.fc_var(flat)
        latent = sampled(self, mu, logvar, noise)
        stages |= {"mu": mu, "logvar": logvar, "latent": latent}
        coarsest = (self.coarsest,) * self.dims
        grid = nn.reshape(self.decoder_input(latent), (-1, self.width, *coarsest))
        stages["decoder_input"] = grid
        steps = {f"decoder{n}": block for n, block in enumerate(self.decoder)}
        return stages | in_turn(grid, steps)


def sampled(model: Any, mu: Any, logvar: Any, noise: Any) -> Any:
    """Sample the normal distribution by the noise; without noise return the mean.

    Raises:
        ShapeError: The noise does not fit.
    """
    if noise is None:
        return mu
    check_noise(model, noise, mu)
    return mu + noise * model.nn.exp(0.5 * logvar)


def check_noise(model: Any, noise: Any, mean: Any) -> None:
    """Check that there is one random number for each element of the latent vectors.

    Raises:
        ShapeError: The noise has another shape than the mean.
    """
    if tuple(noise.shape) != tuple(mean.shape):
        raise ShapeError(
            f"{checks.where(model)}: got noise of shape {tuple(noise.shape)}, wanted "
            f"{tuple(mean.shape)}: one number for each element of the latent vectors"
        )


def _doubling(nn, in_channels: int, out_channels: int, dims: int):
    """Make a transposed convolution to twice the size, a normalisation and an activation."""
    conv, norm = by_dims(nn, dims, "ConvTranspose", "BatchNorm")
    return (
        conv(in_channels, out_channels, 3, 2, 1, 1),
        norm(out_channels),
        nn.LeakyReLU(),
    )


def _coarsest(image_size: int, levels: int) -> int:
    if checks.positive(image_size, "image_size", "ConvVAE") % 2**levels:
        raise SettingError(
            f"ConvVAE: image_size={image_size!r}; wanted a multiple of {2**levels} for {levels} "
            "levels"
        )
    return image_size // 2**levels


def _vectors(settings: Mapping[str, Any]) -> list[Any]:
    return [(settings["in_features"],), Input((settings["latent_size"],))]


def _pictures(settings: Mapping[str, Any]) -> list[Any]:
    return [images_of_size(settings), Input((settings["latent_size"],))]


_SOURCE = "Kingma and Welling 2013, arXiv 1312.6114; "

register(
    VAE,
    name="vae",
    task="generation",
    dims=(0,),
    source=_SOURCE + "PyTorch's example",
    shape=_vectors,
    parameters=652_824,
)
register(
    ConvVAE,
    name="conv_vae",
    task="generation",
    dims=(1, 2, 3),
    source=_SOURCE + "PyTorch-VAE",
    shape=_pictures,
)
