"""Critics for Wasserstein GANs: DCGAN's discriminator with other normalisations.

The generator is DCGAN's. The critics follow the papers, on DCGAN's layers.
"""

from deliralike.zoo.blocks import images_of_size
from deliralike.zoo.generative.dcgan import Discriminator
from deliralike.zoo.registry import register


class Critic(Discriminator):
    """A critic of pictures: a `Discriminator` whose score has no bounds.

    It has layer normalisation by default.

    Batch normalisation makes one sample's score depend on the others, which a penalty on each
    sample's gradient does not allow for; so critics that are trained with `gradient_penalty` have
    none. Source: Arjovsky et al. 2017, arXiv 1701.07875 (with batch normalisation and clipped
    weights), and Gulrajani et al. 2017, arXiv 1704.00028 (with layer normalisation and the
    penalty). Names and start values are those of `Discriminator`.

    Args:
        in_channels, width, image_size, num_classes, dims, norm: As for `Discriminator`.

    Shapes:
        ``(batch, in_channels, *image_size)`` gives ``(batch,)``.
    """

    def __init__(
        self,
        in_channels: int = 3,
        width: int = 64,
        image_size: int = 64,
        num_classes: int = 1,
        dims: int = 2,
        norm: str = "layer",
    ) -> None:
        super().__init__(in_channels, width, image_size, num_classes, dims, norm)


_SOURCES = {
    "wgan_critic": ("batch", "Arjovsky et al. 2017, arXiv 1701.07875", 2_765_568),
    "wgan_gp_critic": ("layer", "Gulrajani et al. 2017, arXiv 1704.00028", None),
}

for _name, (_norm, _source, _parameters) in _SOURCES.items():
    register(
        Critic,
        name=_name,
        variant={"norm": _norm},
        task="generation",
        dims=(1, 2, 3),
        source=_source,
        shape=images_of_size,
        parameters=_parameters,
    )
