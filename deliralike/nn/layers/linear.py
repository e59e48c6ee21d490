"""Linear maps, embeddings and the flattening before them."""

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import Normal, fan_in_uniform


class Linear(Network):
    """``x @ weight.T + bias`` over the last axis.

    Shapes:
        ``(..., in_features)`` gives ``(..., out_features)``.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.check_settings(in_features, out_features)
        self.in_features, self.out_features = in_features, out_features
        start = fan_in_uniform(in_features)
        self.weight = self.nn.Parameter((out_features, in_features), start)
        self.bias = self.nn.Parameter((out_features,), start) if bias else None

    @classmethod
    def check_settings(cls, in_features: int, out_features: int, bias: bool = True) -> None:
        checks.positive(in_features, "in_features", "Linear")
        checks.positive(out_features, "out_features", "Linear")

    def forward(self, x):
        checks.last_axes(self, x, (self.in_features,))
        return self.nn.linear(x, self.weight, self.bias)


class Embedding(Network):
    """Rows of a table, looked up by whole numbers.

    The row `padding_idx` starts at zero and gets no gradient.

    Shapes:
        ``(...)`` gives ``(..., embedding_dim)``.

    Raises:
        IndexRangeError: An index is negative or not below `num_embeddings`.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> None:
        super().__init__()
        self.check_settings(num_embeddings, embedding_dim, padding_idx)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        start = Normal(zero_row=self.padding_idx)
        self.weight = self.nn.Parameter((num_embeddings, embedding_dim), start)

    @classmethod
    def check_settings(
        cls, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> None:
        checks.positive(num_embeddings, "num_embeddings", "Embedding")
        checks.positive(embedding_dim, "embedding_dim", "Embedding")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise SettingError(
                f"Embedding: padding_idx={padding_idx} is not a row of a table with "
                f"{num_embeddings} rows"
            )

    def forward(self, index):
        nn = self.nn
        rows = nn.embedding(index, self.weight)
        if self.padding_idx is None:
            return rows
        padding = nn.expand_dims(index == self.padding_idx, -1)
        return nn.where(nn.broadcast_to(padding, rows.shape), nn.stop_gradient(rows), rows)


class Flatten(Network):
    """Merge the axes from `start_dim` to `end_dim` into one, in NCHW order."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x):
        return self.nn.flatten(x, self.start_dim, self.end_dim)
