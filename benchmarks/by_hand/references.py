"""The reference implementations on PyTorch: torchvision's and MONAI's networks, as they come."""

from tests.references import allow_torchvision

allow_torchvision()

import torchvision  # noqa: E402
from monai.networks.nets import BasicUNet  # noqa: E402


def make(name: str):
    """The reference of a network of the zoo."""
    return BasicUNet(3, 1, 2) if name == "unet" else torchvision.models.get_model(name)
