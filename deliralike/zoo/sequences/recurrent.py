"""Classifiers of sequences with recurrent layers: LSTM and GRU, over tokens or vectors.

They have a plain, common form, which is no paper's own.
"""

from collections.abc import Mapping
from typing import Any

from deliralike.errors import ShapeError
from deliralike.nn import checks
from deliralike.zoo.blocks import classifier
from deliralike.zoo.inputs import Input
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.tokens import check_tokens
from deliralike.zoo.setting_checks import one_of

CELLS = {"lstm": "LSTM", "gru": "GRU"}


class RecurrentClassifier(Model):
    """Embedding, recurrent layers, and a linear head on what each direction gives at its end.

    Source: Hochreiter and Schmidhuber 1997, doi 10.1162/neco.1997.9.8.1735 (LSTM); Cho et al. 2014,
    arXiv 1406.1078 (GRU). The names below ``rnn`` and the start values are those of
    ``torch.nn.LSTM`` and ``torch.nn.GRU``.

    Args:
        cell: ``"lstm"`` or ``"gru"``.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        vocab_size: Number of different tokens; 0 for inputs that are vectors already.
        in_features: Width of the embedding, or of the vectors.
        hidden_size: Width of each recurrent layer and direction.
        num_layers: Number of recurrent layers.
        bidirectional: Whether another direction runs from the end to the beginning.
        dropout: Probability of dropping an element between recurrent layers and before the head.

    Shapes:
        Tokens ``(batch, time)`` or vectors ``(batch, time, in_features)``, and if given ``lengths``
        ``(batch,)``, the number of valid steps of each sequence, give ``(batch, num_classes)``. An
        empty sequence has zeros as features.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: An input has another shape.
        IndexRangeError: A token is not below `vocab_size`, or a length is more than the number of
            steps.
    """

    head_paths = ("fc",)
    channels_last = True

    def __init__(
        self,
        cell: str = "lstm",
        num_classes: int = 2,
        vocab_size: int = 30000,
        in_features: int = 128,
        hidden_size: int = 256,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        nn = self.nn
        one_of(cell, CELLS, "cell", "RecurrentClassifier")
        if vocab_size != 0:
            checks.positive(vocab_size, "vocab_size", "RecurrentClassifier")
        self.hidden_size = hidden_size
        self.bidirectional = bidirectional
        self.embedding = nn.Embedding(vocab_size, in_features) if vocab_size else None
        self.rnn = getattr(nn, CELLS[cell])(
            in_features,
            hidden_size,
            num_layers,
            batch_first=True,
            dropout=dropout,
            bidirectional=bidirectional,
        )
        self.dropout = nn.Dropout(dropout)
        width = hidden_size * (1 + bidirectional)
        self.fc = classifier(nn, width, num_classes, "RecurrentClassifier")

    @property
    def stem_paths(self):  # type: ignore[override]
        """The recurrent layers read the vectors; tokens have no channels."""
        return () if self.embedding is not None else ("rnn",)

    def forward(self, x, lengths=None):
        y = self.forward_stages(x, lengths)["rnn"]
        return self.fc(self.dropout(self._pooled(y, lengths)))

    def forward_stages(self, x, lengths=None):
        """Return the embedding, and the last recurrent layer's output at each step.

        The embedding is ``(batch, time, in_features)``.
        """
        stages = {}
        if self.embedding is not None:
            check_tokens(self, x)
            x = self.embedding(x)
            stages["embedding"] = x
        if len(x.shape) != 3 or x.shape[1] == 0:
            raise ShapeError(
                f"{checks.where(self)}: got an input of shape {tuple(x.shape)}, wanted (batch, "
                "time, in_features) with at least one step"
            )
        stages["rnn"] = self.rnn.outputs(x, lengths)
        return stages

    def _pooled(self, y, lengths):
        """Return each direction's last valid step: (batch, time, width) gives (batch, width)."""
        if lengths is None:
            last = y[:, -1, : self.hidden_size]
        else:
            last = self._at_end(y[:, :, : self.hidden_size], lengths)
        if not self.bidirectional:
            return last
        first = y[:, 0, self.hidden_size :]  # where the backward direction ends
        return self.nn.concatenate([last, first], dim=1)

    def _at_end(self, y, lengths):
        """Return the last valid step; the first, which is zero, where there is none."""
        nn = self.nn
        batch, _, width = y.shape
        index = nn.where(lengths > 0, lengths - 1, lengths * 0)
        index = nn.broadcast_to(nn.reshape(index, (batch, 1, 1)), (batch, 1, width))
        return nn.take_along(y, index, 1)[:, 0]


def _shape(settings: Mapping[str, Any]) -> Any:
    if settings["vocab_size"]:
        return Input((256,), below=settings["vocab_size"])
    return (256, settings["in_features"])


_SOURCES = {
    "lstm": "Hochreiter and Schmidhuber 1997, doi 10.1162/neco.1997.9.8.1735; torch.nn.LSTM",
    "gru": "Cho et al. 2014, arXiv 1406.1078; torch.nn.GRU",
}

for _cell, _source in _SOURCES.items():
    register(
        RecurrentClassifier,
        name=f"{_cell}_classifier",
        variant={"cell": _cell},
        task="text classification",
        dims=(1,),
        source=_source,
        shape=_shape,
    )
