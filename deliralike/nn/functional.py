"""All functions of the vocabulary: those of a backend, and those written once on top of them."""

from deliralike.nn.activations import Activations
from deliralike.nn.adversarial_losses import AdversarialLosses
from deliralike.nn.composed_losses import ComposedLosses
from deliralike.nn.distribution_losses import DistributionLosses
from deliralike.nn.norms import Norms
from deliralike.nn.overlap_losses import OverlapLosses
from deliralike.nn.sequences import Sequences
from deliralike.nn.shaping import Shaping
from deliralike.nn.windows import Windows


class Functions(
    Sequences,
    OverlapLosses,
    DistributionLosses,
    AdversarialLosses,
    ComposedLosses,
    Windows,
    Norms,
    Shaping,
    Activations,
):
    """The functions of `nn`.

    A backend fills in `Primitives`, and replaces others where it has something faster.
    """
