"""DCGAN: a generator of pictures from noise, and the discriminator that tells them from real ones.

They follow the paper, at the widths of PyTorch's example.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.start import Normal
from deliralike.zoo.blocks import by_dims, has_side, images_of_size, run_stages
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import one_of

NORMS = ("batch", "layer")


class Generator(Model):
    """A generator of pictures from noise.

    Transposed convolutions double the size, from 4 elements along each axis.

    Source: Radford et al. 2016, arXiv 1511.06434. Names, order and start values (normal with 0.02,
    norms around 1) are those of PyTorch's example (``main.0``, ``main.1`` …).

    Args:
        latent_size: Length of the noise.
        width: Channels before the last layer; each level before it has twice as many.
        out_channels: Channels of the picture.
        image_size: Its size along each axis: 8, 16, 32, 64 …
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, latent_size)`` gives ``(batch, out_channels, *image_size)`` with values from -1 to
        1. The example's ``(batch, latent_size, 1, 1)`` is taken as well.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The noise has another length.
    """

    outputs = "out_channels"

    def __init__(
        self,
        latent_size: int = 100,
        width: int = 64,
        out_channels: int = 3,
        image_size: int = 64,
        dims: int = 2,
    ) -> None:
        super().__init__()
        self.latent_size = latent_size
        self.levels = doublings(image_size, "Generator")
        self.dims = dims
        layers = _up(self.nn, latent_size, width, out_channels, self.levels, dims)
        self.main = self.nn.Sequential(*layers)

    @property
    def head_paths(self):  # type: ignore[override]
        """The last transposed convolution."""
        return (f"main.{3 * self.levels}",)

    @property
    def start_values(self):  # type: ignore[override]
        """The example's start values: normal with 0.02 around 0, for norms around 1."""
        return dict(_start_values(self.main))

    def forward(self, noise):
        nn = self.nn
        x = self.last_stage(noise)
        return nn.tanh(self.main[3 * self.levels](x))

    def forward_stages(self, noise):
        """Return the levels but the last.

        Each is ``(batch, width * 2**n, *size)``, with n counting down to 0 and the size from 4
        upwards.
        """
        shape = tuple(noise.shape)
        if shape[1:2] != (self.latent_size,) or any(size != 1 for size in shape[2:]):
            raise ShapeError(
                f"{checks.where(self)}: got noise of shape {shape}, wanted "
                f"(batch, {self.latent_size})"
            )
        x = self.nn.reshape(noise, (shape[0], self.latent_size, *(1,) * self.dims))
        ends = [(f"level{n}", 3 * n) for n in range(1, self.levels + 1)]
        return run_stages(self.main, x, ends)


class Discriminator(Model):
    """A discriminator of pictures.

    Convolutions halve the size down to 4 elements along each axis, then one more gives the score.

    Source: Radford et al. 2016, arXiv 1511.06434. Names, order and start values are those of
    PyTorch's example. Its last sigmoid is left to the loss (`discriminator_loss`,
    `bce_with_logits`), which is more accurate so.

    Args:
        in_channels: Channels of the picture.
        width: Channels of the first layer; each level has twice as many as the one before.
        image_size: The picture's size along each axis: 8, 16, 32, 64 …
        num_classes: Number of scores; 0 for no head: the features of the last level, flattened.
        dims: Number of spatial axes: 1, 2 or 3.
        norm: After all convolutions but the first and the last: ``"batch"``, before which they have
            no bias, or ``"layer"`` (over all elements of a sample, scale and shift for each
            channel).

    Shapes:
        ``(batch, in_channels, *image_size)`` gives ``(batch,)``, or ``(batch, num_classes)`` for
        several scores.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The picture has another size or (the error names ``main.0``) number of channels.
    """

    stem_paths = ("main.0",)

    def __init__(
        self,
        in_channels: int = 3,
        width: int = 64,
        image_size: int = 64,
        num_classes: int = 1,
        dims: int = 2,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        one_of(norm, NORMS, "norm", type(self).__name__)
        self.levels = doublings(image_size, type(self).__name__)
        self.image_size = image_size
        self.num_classes = _scores(num_classes)
        layers = _down(
            self.nn, in_channels, width, self.levels, num_classes, dims, norm
        )
        self.main = self.nn.Sequential(*layers)

    @property
    def head_paths(self):  # type: ignore[override]
        """The last convolution."""
        if not self.num_classes:
            return ()
        _, end = self._ends()[-1]
        return (f"main.{end}",)

    @property
    def start_values(self):  # type: ignore[override]
        """The example's start values: normal with 0.02 around 0, for norms around 1."""
        return dict(_start_values(self.main))

    def forward(self, x):
        nn = self.nn
        level, end = self._ends()[-1]
        x = self.forward_stages(x)[level]
        if not self.num_classes:
            return nn.flatten(x)
        scores = nn.flatten(self.main[end](x))  # (batch, num_classes)
        return scores[:, 0] if self.num_classes == 1 else scores

    def forward_stages(self, x):
        """Return the levels, down to 4 elements along each axis.

        Each is ``(batch, width * 2**n, *size / 2**(n + 1))``, with n from 0.
        """
        has_side(self, x, self.image_size)
        return run_stages(self.main, x, self._ends())

    def _ends(self) -> list[tuple[str, int]]:
        """Return the name of each level and the number of blocks up to its end.

        The first level has no normalisation.
        """
        return [(f"level{n}", 3 * n - 1) for n in range(1, self.levels + 1)]


def doublings(image_size: int, what: str) -> int:
    """Return how often 4 has to be doubled to have that size.

    Raises:
        SettingError: The size is not 8, 16, 32 …
    """
    times = checks.positive(image_size, "image_size", what).bit_length() - 3
    if times < 1 or image_size != 4 * 2**times:
        raise SettingError(
            f"{what}: image_size={image_size!r}; wanted 8, 16, 32, 64 or so on"
        )
    return times


def _up(
    nn, latent_size: int, width: int, out_channels: int, levels: int, dims: int
) -> Iterator[Any]:
    conv, norm = by_dims(nn, dims, "ConvTranspose", "BatchNorm")
    widths = [width * 2**level for level in reversed(range(levels))]
    yield from (
        conv(latent_size, widths[0], 4, 1, 0, bias=False),
        norm(widths[0]),
        nn.ReLU(),
    )
    for before, here in pairwise(widths):
        yield from (conv(before, here, 4, 2, 1, bias=False), norm(here), nn.ReLU())
    yield from (conv(width, out_channels, 4, 2, 1, bias=False), nn.Tanh())


def _down(
    nn,
    in_channels: int,
    width: int,
    levels: int,
    num_classes: int,
    dims: int,
    norm: str,
) -> Iterator[Any]:
    conv, batch_norm = by_dims(nn, dims, "Conv", "BatchNorm")
    bias = norm == "layer"
    before = in_channels
    for level in range(levels):
        here = width * 2**level
        yield conv(before, here, 4, 2, 1, bias=bias)
        if level:
            yield nn.GroupNorm(1, here) if norm == "layer" else batch_norm(here)
        yield nn.LeakyReLU(0.2)
        before = here
    if num_classes:
        yield conv(before, num_classes, 4, 1, 0, bias=bias)


def _start_values(main) -> Iterator[tuple[str, Normal]]:
    for number, layer in enumerate(main):
        if hasattr(layer, "weight"):
            is_norm = hasattr(layer, "eps")
            yield f"main.{number}.weight", Normal(0.02, mean=1.0 if is_norm else 0.0)


def _scores(num_classes: int) -> int:
    if num_classes == 0:
        return 0
    return checks.positive(num_classes, "num_classes", "Discriminator")


def noise(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of one sample's noise, from the settings."""
    return (settings["latent_size"],)


_SOURCE = "Radford et al. 2016, arXiv 1511.06434; PyTorch's example"

register(
    Generator,
    name="dcgan_generator",
    task="generation",
    dims=(1, 2, 3),
    source=_SOURCE,
    shape=noise,
    parameters=3_576_704,
)
register(
    Discriminator,
    name="dcgan_discriminator",
    task="generation",
    dims=(1, 2, 3),
    source=_SOURCE,
    shape=images_of_size,
    parameters=2_765_568,
)
