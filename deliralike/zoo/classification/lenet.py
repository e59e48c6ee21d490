"""LeNet, for small grey images.

Unlike the paper it has maxima instead of averages with weights, ReLU by default, all maps
connected, and linear outputs instead of radial ones.
"""

from deliralike.errors import SettingError
from deliralike.nn import checks
from deliralike.zoo.blocks import classifier, images_of_size
from deliralike.zoo.classification.mlp import activation_layer
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register


class LeNet(Model):
    """LeNet-5 in the form that is common today.

    It has maxima instead of averages, and a second layer that is fully connected.

    Source: LeCun et al. 1998, doi 10.1109/5.726791; names of PyTorch's CIFAR-10 tutorial (conv1,
    conv2, fc1, fc2, fc3).

    Args:
        num_classes: Number of outputs; 0 for no head.
        in_channels: Number of input channels.
        image_size: Height and width of the images, at least 12.
        activation: ``"relu"``, ``"tanh"`` (as in the paper) …

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: The images are too small, or a setting makes no sense.
        ShapeError: The input has other channels (the error names ``conv1``) or another size.
    """

    stem_paths = ("conv1",)
    head_paths = ("fc3",)

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int = 28,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        nn = self.nn
        side = (checks.positive(image_size, "image_size", "LeNet") // 2 - 4) // 2
        if side < 1:
            raise SettingError(
                f"LeNet: image_size={image_size!r} is too small, it must be at least 12"
            )
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.activation = activation_layer(nn, activation)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = classifier(nn, 84, num_classes, "LeNet")

    def forward(self, x):
        return self.fc3(self.forward_stages(x)["fc2"])

    def forward_stages(self, x):
        """Return two convolutional stages and two fully connected ones."""
        # (batch, 6, 14, 14) for images of 28
        conv1 = self.pool(self.activation(self.conv1(x)))
        conv2 = self.pool(self.activation(self.conv2(conv1)))  # (batch, 16, 5, 5)
        fc1 = self.activation(self.fc1(self.nn.flatten(conv2)))  # (batch, 120)
        fc2 = self.activation(self.fc2(fc1))  # (batch, 84)
        return {"conv1": conv1, "conv2": conv2, "fc1": fc1, "fc2": fc2}


register(
    LeNet,
    name="lenet",
    source="LeCun et al. 1998, doi 10.1109/5.726791",
    shape=images_of_size,
    parameters=61_706,
)
