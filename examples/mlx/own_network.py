"""A network of one's own: convolution, norm, recurrence, attention and dropout."""

import deliralike


class Pictures(deliralike.Network):
    """Classes of pictures, read as sequences of places."""

    def __init__(self, width: int = 8, classes: int = 4) -> None:
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(3, width, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(width)
        self.recurrence = nn.GRU(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures):
        """Return the scores of the classes."""
        nn = self.nn
        x = nn.gelu(self.norm(self.conv(pictures)))
        batch, width, *sizes = x.shape
        x = nn.permute(nn.reshape(x, (batch, width, -1)), (0, 2, 1))
        y, _ = self.recurrence(x)
        attended, _ = self.attention(y, y, y)
        return self.head(self.dropout(nn.mean(x + attended, dim=1)))
