"""Variational autoencoders: a perceptron and a convolutional one. The noise is an input.

Unlike the paper: ReLU instead of tanh, Adam's era of widths; the convolutional one is a later,
common form.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.zoo.blocks import by_dims, in_turn
from deliralike.zoo.model import Model
from deliralike.zoo.registry import Input, register


class VAE(Model):
    """A perceptron that encodes to the mean and variance of a normal distribution, and decodes a sample of it.

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
        ``(batch, in_features)``, the means and the logarithms of the variances, ``(batch,
        latent_size)``. Inputs with more axes are flattened. Without noise the mean is decoded.
    """

    stem_paths = ("fc1",)
    head_paths = ("fc4",)
    outputs = "in_features"

    def __init__(
        self, in_features: int = 784, hidden: int = 400, latent_size: int = 20, sigmoid: bool = True
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
        return self.nn.sigmoid(y) if self.sigmoid else y, stages["mu"], stages["logvar"]

    def forward_stages(self, x, noise=None):
        """The hidden layer, means, logarithms of variances, latent vector and second hidden layer."""
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
        widths = _widths(features)
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        nn, self.image_size, self.dims = self.nn, image_size, dims
        self.coarsest = _coarsest(image_size, len(widths))
        flat = widths[-1] * self.coarsest**dims
        pairs = list(zip((in_channels, *widths), widths, strict=False))
        self.encoder = nn.Sequential(
            *(nn.Sequential(conv(a, b, 3, 2, 1), norm(b), nn.LeakyReLU()) for a, b in pairs)
        )
        self.fc_mu = nn.Linear(flat, latent_size)
        self.fc_var = nn.Linear(flat, latent_size)
        self.decoder_input = nn.Linear(latent_size, flat)
        self.decoder = nn.Sequential(
            *(nn.Sequential(*_doubling(nn, b, a, dims)) for a, b in reversed(pairs[1:]))
        )
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
        """The levels of the encoder, means, logarithms of variances, latent vector and levels of the decoder."""
        nn = self.nn
        if any(size != self.image_size for size in x.shape[2:]):
            raise ShapeError(
                f"{checks.where(self)}: got an input of shape {tuple(x.shape)}, wanted "
                f"{self.image_size} elements along each spatial axis"
            )
        stages = in_turn(x, {f"encoder{n}": block for n, block in enumerate(self.encoder)})
        flat = nn.flatten(next(reversed(stages.values())))
        mu = self.fc_mu(flat)
        logvar = self.fc_var(flat)
        latent = sampled(self, mu, logvar, noise)
        stages |= {"mu": mu, "logvar": logvar, "latent": latent}
        grid = nn.reshape(
            self.decoder_input(latent), (-1, self.width, *(self.coarsest,) * self.dims)
        )
        stages["decoder_input"] = grid
        return stages | in_turn(
            grid, {f"decoder{n}": block for n, block in enumerate(self.decoder)}
        )


def sampled(model: Any, mu: Any, logvar: Any, noise: Any) -> Any:
    """A sample of the normal distribution, by the noise; the mean when there is none.

    Raises:
        ShapeError: The noise does not fit.
    """
    if noise is None:
        return mu
    if tuple(noise.shape) != tuple(mu.shape):
        raise ShapeError(
            f"{checks.where(model)}: got noise of shape {tuple(noise.shape)}, wanted "
            f"{tuple(mu.shape)}: one number for each element of the latent vectors"
        )
    return mu + noise * model.nn.exp(0.5 * logvar)


def _doubling(nn, in_channels: int, out_channels: int, dims: int):
    """A transposed convolution to twice the size, a normalisation and an activation."""
    conv, norm = by_dims(nn, dims, "ConvTranspose", "BatchNorm")
    return conv(in_channels, out_channels, 3, 2, 1, 1), norm(out_channels), nn.LeakyReLU()


def _widths(features: Sequence[int]) -> tuple[int, ...]:
    if isinstance(features, int | str) or not features:
        raise SettingError(f"ConvVAE: features={features!r}; wanted one width or more")
    return tuple(checks.positive(width, "features", "ConvVAE") for width in features)


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
    size = (settings["image_size"],) * settings["dims"]
    return [(settings["in_channels"], *size), Input((settings["latent_size"],))]


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
