"""Noise: random numbers of an array's shape and type, drawn in both modes."""

from collections.abc import Sequence

from deliralike.network.base import Network


class _Noise(Network):
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.nn.prepare_rng(self)

    def forward(self, x, shape: Sequence[int] | None = None):
        sizes = tuple(x.shape if shape is None else shape)
        return self.nn.draw(self, sizes, x, self.kind)


class NormalNoise(_Noise):
    """Numbers of mean 0 and variance 1, as ``torch.randn_like`` draws them, in both modes.

    ``mean + std * self.noise(std)`` is a sample through which gradients go to `mean` and `std`
    (Kingma and Welling 2013, arXiv 1312.6114). ``layer(x, shape)`` draws another shape, in the type
    of `x` and on its device. The first axis has the samples: within `deliralike.random.portable`
    each one's numbers depend on seed, layer, step and its place in the batch alone, on every
    backend.

    Shapes:
        ``(batch, ...)`` gives ``(batch, ...)``.
    """

    kind = "normal"


class UniformNoise(_Noise):
    """Numbers from 0 to 1, without 1, as ``torch.rand_like`` draws them, in both modes.

    All else is as for `NormalNoise`.
    """

    kind = "uniform"
