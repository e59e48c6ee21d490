"""All functions of the vocabulary: those of a backend, and those written once on top of them."""

from deliralike.nn.activations import Activations
from deliralike.nn.adversarial_losses import AdversarialLosses
from deliralike.nn.bags import Bags
from deliralike.nn.composed_losses import ComposedLosses
from deliralike.nn.ctc import SequenceLosses
from deliralike.nn.distance_losses import DistanceLosses
from deliralike.nn.distribution_losses import DistributionLosses
from deliralike.nn.norms import Norms
from deliralike.nn.operations import Registered
from deliralike.nn.other_names import OtherNames
from deliralike.nn.overlap_losses import OverlapLosses
from deliralike.nn.products import Products
from deliralike.nn.sampling import Sampling
from deliralike.nn.sequences import Sequences
from deliralike.nn.windows import Windows


class Functions(
    Sequences,
    OverlapLosses,
    DistributionLosses,
    DistanceLosses,
    SequenceLosses,
    AdversarialLosses,
    ComposedLosses,
    Sampling,
    Windows,
    Bags,
    Norms,
    OtherNames,
    Products,
    Activations,
    Registered,
):
    """The functions of `nn`.

    A backend fills in `Primitives`, and replaces others where it has something faster. Operations
    that a user has registered are found by their names, too.
    """
