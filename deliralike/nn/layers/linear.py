"""Linear maps, embeddings and the flattening before them."""

from collections.abc import Sequence

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.function_layers import (
    FunctionLayer,
    FunctionOfSeveral,
    function_layers,
)
from deliralike.nn.start import Normal, fan_in_uniform


class Linear(Network):
    """``x @ weight.T + bias`` over the last axis.

    Shapes:
        ``(..., in_features)`` gives ``(..., out_features)``.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool | None = True
    ) -> None:
        super().__init__()
        self.check_settings(in_features, out_features)
        self.in_features = in_features
        self.out_features = out_features
        start = fan_in_uniform(in_features)
        self.weight = self.nn.Parameter((out_features, in_features), start)
        self.bias = self.nn.Parameter((out_features,), start) if bias else None

    @classmethod
    def check_settings(
        cls, in_features: int, out_features: int, bias: bool | None = True
    ) -> None:
        checks.positive(in_features, "in_features", "Linear")
        checks.positive(out_features, "out_features", "Linear")

    def forward(self, x):
        checks.last_axes(self, x, (self.in_features,))
        return self.nn.linear(x, self.weight, self.bias)


class _Table(Network):
    def _add_table(self, rows: int, width: int, padding_idx: int | None) -> None:
        self.num_embeddings = rows
        self.embedding_dim = width
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        start = Normal(zero_row=self.padding_idx)
        self.weight = self.nn.Parameter((rows, width), start)


class Embedding(_Table):
    """Rows of a table, looked up by whole numbers.

    The row `padding_idx` starts at zero and gets no gradient. The settings after it must be at
    their defaults.

    Shapes:
        ``(...)`` gives ``(..., embedding_dim)``.

    Raises:
        IndexRangeError: An index is negative or not below `num_embeddings`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        settings = (max_norm, norm_type, scale_grad_by_freq, sparse)
        self.check_settings(num_embeddings, embedding_dim, padding_idx, *settings)
        self._add_table(num_embeddings, embedding_dim, padding_idx)

    @classmethod
    def check_settings(
        cls,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise SettingError(
                "Embedding: max_norm, scale_grad_by_freq and sparse are not supported: leave them "
                "at their defaults"
            )
        checks.positive(num_embeddings, "num_embeddings", "Embedding")
        checks.positive(embedding_dim, "embedding_dim", "Embedding")
        if (
            padding_idx is not None
            and not -num_embeddings <= padding_idx < num_embeddings
        ):
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
        return nn.where(
            nn.broadcast_to(padding, rows.shape), nn.stop_gradient(rows), rows
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima of a table's rows over bags; see `embedding_bag`.

    The row `padding_idx` starts at zero and does not count. `max_norm`, `norm_type`,
    `scale_grad_by_freq` and `sparse` must be at their defaults.

    Shapes:
        ``(bags, length)``, or ``(rows,)`` with offsets ``(bags,)``, give
        ``(bags, embedding_dim)``.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        Embedding.check_settings(num_embeddings, embedding_dim, *settings)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self._add_table(num_embeddings, embedding_dim, padding_idx)

    def forward(self, index, offsets=None, per_sample_weights=None):
        return self.nn.embedding_bag(
            index,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )


_FUNCTIONS = {"Flatten": "flatten start_dim end_dim"}
globals().update(function_layers(FunctionLayer, __name__, _FUNCTIONS))


class Unflatten(Network):
    """Spread the axis `dim` over several of sizes `unflattened_size`; one of them may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, x):
        return self.nn.unflatten(x, self.dim, self.unflattened_size)


class Bilinear(Network):
    """``x1 @ weight[k] @ x2 + bias[k]`` for each output k.

    Shapes:
        ``(..., in1_features)`` and ``(..., in2_features)`` give ``(..., out_features)``.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool | None = True,
    ) -> None:
        super().__init__()
        self.in1_features = checks.positive(in1_features, "in1_features", "Bilinear")
        self.in2_features = checks.positive(in2_features, "in2_features", "Bilinear")
        self.out_features = checks.positive(out_features, "out_features", "Bilinear")
        start = fan_in_uniform(in1_features)
        shape = (out_features, in1_features, in2_features)
        self.weight = self.nn.Parameter(shape, start)
        self.bias = self.nn.Parameter((out_features,), start) if bias else None

    def forward(self, input1, input2):
        checks.last_axes(self, input1, (self.in1_features,))
        checks.last_axes(self, input2, (self.in2_features,))
        return self.nn.bilinear(input1, input2, self.weight, self.bias)


_DISTANCES = {
    "CosineSimilarity": "cosine_similarity dim eps",
    "PairwiseDistance": "pairwise_distance p eps keepdim",
}
globals().update(function_layers(FunctionOfSeveral, __name__, _DISTANCES))
