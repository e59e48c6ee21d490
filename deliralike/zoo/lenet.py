"""LeNet, for small grey images."""

from deliralike.errors import SettingError
from deliralike.network import Network
from deliralike.nn import checks
from deliralike.zoo.mlp import activation_layer
from deliralike.zoo.registry import register


class LeNet(Network):
    """A net like LeNet-5, in the form that is common today: maxima instead of averages, fully connected second layer.

    Source: LeCun et al. 1998, doi 10.1109/5.726791; names of PyTorch's CIFAR-10 tutorial (conv1, conv2, fc1, fc2, fc3).

    Args:
        num_classes: Number of outputs.
        in_channels: Number of input channels.
        image_size: Height and width of the images, at least 12.
        activation: ``"relu"``, ``"tanh"`` (as in the paper) …

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: The images are too small, or a setting makes no sense.
        ShapeError: The input has other channels (the error names ``conv1``) or another size.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, image_size: int = 28,
                 activation: str = "relu") -> None:  # fmt: skip
        super().__init__()
        nn = self.nn
        side = (checks.positive(image_size, "image_size", "LeNet") // 2 - 4) // 2
        if side < 1:
            raise SettingError(f"LeNet: image_size={image_size!r} is too small, it must be at least 12")
        self.conv1 = nn.Conv2d(checks.positive(in_channels, "in_channels", "LeNet"), 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.activation = activation_layer(nn, activation)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, checks.positive(num_classes, "num_classes", "LeNet"))

    def forward(self, x):
        x = self.pool(self.activation(self.conv1(x)))  # (batch, 6, 14, 14) for images of 28
        x = self.pool(self.activation(self.conv2(x)))  # (batch, 16, 5, 5)
        x = self.activation(self.fc1(self.nn.flatten(x)))  # (batch, 120)
        return self.fc3(self.activation(self.fc2(x)))


register(
    LeNet,
    name="lenet",
    source="LeCun et al. 1998, doi 10.1109/5.726791",
    shape=lambda settings: (settings["in_channels"], settings["image_size"], settings["image_size"]),
    parameters=61_706,
)
