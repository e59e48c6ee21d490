"""AlexNet, in the form with one tower that torchvision builds.

Unlike the 2012 paper: one tower instead of two, no local response normalisation, other widths (64,
192, 384, 256, 256), and an adaptive pooling before the linear layers, so that other sizes pass.
"""

from deliralike.zoo.blocks import classifier, images, large_enough, run_stages
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import register

_STAGES = (("conv1", 2), ("conv2", 5), ("conv5", 12), ("features", 13))


class AlexNet(PooledClassifier):
    """Five convolutions, three poolings and three linear layers.

    Source: Krizhevsky 2014, arXiv 1404.5997 (one tower, no local response normalisation); names,
    order, shapes and start values (PyTorch's own) are those of ``torchvision.models.alexnet``.

    Args:
        num_classes: Number of outputs; 0 for no head: the features before the last linear layer.
        in_channels: Number of input channels.
        dropout: Before the first two linear layers.
        hidden: Width of the linear layers.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.0``), or is smaller than 63 along an axis.
    """

    stem_paths = ("features.0",)
    head_paths = ("classifier.6",)
    can_stop = True

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        dropout: float = 0.5,
        hidden: int = 4096,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 36, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            classifier(nn, hidden, num_classes, "AlexNet"),
        )

    def forward_stages(self, x, until=None):
        """Return the convolutions before each pooling, / 4 to / 16, and the last pooling, / 32.

        Sizes are rounded down.
        """
        large_enough(self, x, 63, "features")
        return run_stages(self.features, x, _STAGES, until)


register(
    AlexNet,
    name="alexnet",
    source="Krizhevsky 2014, arXiv 1404.5997; torchvision",
    shape=images(224),
    parameters=61_100_840,
)
