"""The whole vocabulary of functions: what a backend provides and what is written once on top of it."""

from deliralike.nn.activations import Activations
from deliralike.nn.losses import Losses
from deliralike.nn.norms import Norms
from deliralike.nn.sequences import Sequences
from deliralike.nn.shaping import Shaping
from deliralike.nn.windows import Windows


class Functions(Sequences, Losses, Windows, Norms, Shaping, Activations):
    """The functions of `nn`. A backend fills in `Primitives`, and replaces others where it has something faster."""
