"""The base of the zoo's networks: stages, stem, head, and other layouts of names."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from deliralike.errors import CapabilityError
from deliralike.network.base import Network
from deliralike.zoo.keymaps import KeyMap, without


class Model(Network):
    """The base of the zoo's networks.

    A model runs in stages: `forward_stages` returns the output of each of them by name, and
    ``forward`` is the last stage followed by the head. With ``num_classes=0`` a classifier has no
    head and returns the pooled features.

    Attributes:
        stem_paths: Dotted paths of the layers that read the input's channels.
        head_paths: Dotted paths of the layers whose outputs are the classes (or the output
            channels).
        outputs: The name of the setting that holds their number.
        keymaps: Other layouts of the state that are in use, for example timm's.
        can_stop: Whether ``forward_stages(..., until=names)`` stops as soon as it has the stages of
            those names.
        not_for_decoders: The names of stages that an encoder of a segmentation network passes by.
        channels_last: Whether a stage gives ``(batch, tokens, channels)``, as those of networks
            over sequences do.
        ignored_names: A regular expression for names of arrays in published files that the model
            has no use for.
        published_weights: The entry of the registry that the weights came from (`Published`); None
            for others.
    """

    stem_paths: ClassVar[tuple[str, ...]] = ()
    head_paths: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[str] = "num_classes"
    keymaps: ClassVar[tuple[KeyMap, ...]] = ()
    can_stop: ClassVar[bool] = False
    not_for_decoders: ClassVar[tuple[str, ...]] = ()
    channels_last: ClassVar[bool] = False
    ignored_names: ClassVar[str] = ""
    published_weights: Any = None

    def forward_stages(self, *inputs: Any) -> dict[str, Any]:
        """Return the output of each stage by name, from the first to the last.

        Every model has its own stages.

        Shapes:
            As ``forward`` takes; for images a stage gives ``(batch, channels, *size / reduction)``.
        """
        raise CapabilityError(
            f"{type(self).__name__} names no stages: write forward_stages"
        )

    def last_stage(self, *inputs: Any) -> Any:
        """Return the output of the last stage."""
        return next(reversed(self.forward_stages(*inputs).values()))

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Make a weight of another shape fit where this model knows how (position tables).

        The default returns None: this model does not know how.

        Stem and head are not asked for: they are adapted by `deliralike.zoo.load`.
        """
        return None

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Mend a whole state in this model's names before it is loaded.

        By default what `ignored_names` matches is left out.
        """
        return without(state, self.ignored_names)


class PooledClassifier(Model):
    """A classifier that reads its last stage through `avgpool`.

    A subclass makes that layer and the head, with whose name `head_paths` begin.
    """

    avgpool: Any

    def forward(self, x):
        name, _, _ = self.head_paths[0].partition(".")
        head = getattr(self, name)
        return head(self.nn.flatten(self.avgpool(self.last_stage(x))))
