"""The reference implementations on PyTorch: torchvision's and MONAI's networks, as they come."""

from typing import Any

from tests.references import allow_torchvision

allow_torchvision()

import torchvision  # noqa: E402


def make(name: str, **settings: Any):
    """The reference of a network of the zoo."""
    if name == "unet":
        from monai.networks.nets import BasicUNet

        return BasicUNet(3, 1, 2)
    if name.startswith("vit") and settings:
        return torchvision.models.VisionTransformer(**settings)
    return torchvision.models.get_model(name, **settings)
