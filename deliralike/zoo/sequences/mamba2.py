"""Mamba-2: state space models that predict the next token, with Hugging Face's names.

They follow the paper's code. A chunk of tokens is computed by matrix products, as in the paper;
what came before it is one state, so that a token costs the same however long the text is.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ONES, ZEROS, Normal, Shape
from deliralike.zoo.blocks import each_output, numbered
from deliralike.zoo.inputs import Input
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.sequences.language_model import Decoder, LanguageModel
from deliralike.zoo.sequences.tokens import check_mask, check_tokens
from deliralike.zoo.setting_checks import positive

START = Normal(0.1)
EPS = 1e-5  # of every normalisation
EXPANSION = 2  # of the width within a layer
KERNEL = 4  # tokens that the convolution sees


@dataclass(frozen=True)
class InverseSoftplus:
    """Numbers whose softplus lies between two steps, uniformly on a logarithmic scale."""

    least: float
    most: float

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        share = generator.uniform(size=shape)
        steps = self.least * (self.most / self.least) ** share
        return np.log(np.expm1(steps))


class GatedNorm(Network):
    """Each group of channels, times SiLU of a gate, divided by its root mean square.

    Shapes:
        ``(batch, tokens, width)``, twice, give the same.
    """

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = self.nn.Parameter((width,), ONES)

    def forward(self, x, gate):
        nn = self.nn
        x = x * nn.silu(gate)
        grouped = nn.unflatten(x, 2, (self.groups, -1))
        normed = nn.rms_norm(grouped, grouped.shape[-1:], eps=EPS)
        return nn.reshape(normed, x.shape) * self.weight


class Mixer(Network):
    """A state space whose inputs, outputs and steps depend on the tokens: the paper's SSD.

    Source: Dao and Gu 2024, arXiv 2405.21060, sections 6 and 7.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self, width: int, state_size: int, head_dim: int, n_groups: int, chunk_size: int
    ) -> None:
        super().__init__()
        nn = self.nn
        inner = EXPANSION * width
        heads = inner // head_dim
        self.groups, self.chunk_size = n_groups, chunk_size
        self.state = (n_groups, heads // n_groups, head_dim, state_size)
        self.parts = (inner, n_groups * state_size, n_groups * state_size)
        convolved = sum(self.parts)
        self.widths = (inner, convolved, heads)
        self.dt_bias = nn.Parameter((heads,), InverseSoftplus(0.001, 0.1))
        self.A_log = nn.Parameter((heads,), np.log(np.arange(1, heads + 1)))
        self.D = nn.Parameter((heads,), ONES)
        self.conv1d = nn.Conv1d(convolved, convolved, KERNEL, groups=convolved)
        self.in_proj = nn.Linear(width, sum(self.widths), bias=False)
        self.norm = GatedNorm(inner, n_groups)
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x, valid=None, cache=None):
        nn = self.nn
        before = None if cache is None else cache.stored()
        recent, state = self._empty(x) if before is None else before
        gate, inputs, steps = nn.split(self.in_proj(x), self.widths, dim=-1)
        inputs = nn.concatenate([recent, nn.permute(inputs, (0, 2, 1))], dim=2)
        y = nn.permute(nn.silu(self.conv1d(inputs)), (0, 2, 1))
        if valid is not None:
            y = y * valid
        y, state = self._scan(y, steps, state)
        if cache is not None:
            cache.store((inputs[:, :, 1 - KERNEL :], state))
        return self.out_proj(self.norm(y, gate))

    def _empty(self, x):
        """Return what is remembered before a text: inputs of the convolution, and the state."""
        batch = x.shape[0]
        recent = self.nn.zeros((batch, self.conv1d.in_channels, KERNEL - 1), like=x)
        return recent, self.nn.zeros((batch, *self.state), like=x)

    def _scan(self, y, steps, state):
        nn = self.nn
        x, to_state, from_state = nn.split(y, self.parts, dim=-1)
        steps = nn.softplus(steps + self.dt_bias)
        logs = -nn.exp(self.A_log) * steps
        x, steps, logs, to_state, from_state = (
            nn.unflatten(each, 2, (self.groups, -1))
            for each in (x, steps, logs, to_state, from_state)
        )
        x = nn.unflatten(x, 3, self.state[1:3])
        scanned, state = scan(
            nn,
            x * nn.unsqueeze(steps, 4),
            logs,
            to_state,
            from_state,
            state,
            self.chunk_size,
        )
        scanned = scanned + x * nn.reshape(self.D, (self.groups, -1, 1))
        return nn.flatten(scanned, 2), state


def scan(
    nn: Any,
    x: Any,
    logs: Any,
    to_state: Any,
    from_state: Any,
    state: Any,
    chunk_size: int,
) -> tuple[Any, Any]:
    """Return what a state gives after each token, and the state after the last one.

    At each token the state of a head decays, and the outer product of the head's input and
    `to_state` is added; the output is its product with `from_state`.

    Args:
        nn: The vocabulary.
        x: The inputs, ``(batch, tokens, groups, heads, width)``.
        logs: The logarithms of the decays, ``(batch, tokens, groups, heads)``.
        to_state, from_state: ``(batch, tokens, groups, states)``, the same for a group's heads.
        state: The state before the first token, ``(batch, groups, heads, width, states)``.
        chunk_size: Number of tokens, at most, that are computed by one matrix product.
    """
    tokens = x.shape[1]
    chunks = math.ceil(tokens / chunk_size)
    size = math.ceil(tokens / chunks)  # the least padding for so many chunks
    x, logs, to_state, from_state = (
        _chunks(nn, each, size) for each in (x, logs, to_state, from_state)
    )
    # axes: b batch, c chunk, t and s tokens, g group, h head, w width, n states
    logs = nn.permute(logs, (0, 1, 3, 4, 2))
    within = decays(nn, logs)
    scores = nn.einsum("bctgn,bcsgn->bcgts", from_state, to_state)
    y = nn.einsum("bcghts,bcsghw->bctghw", within * nn.unsqueeze(scores, 3), x)
    at_end = nn.einsum("bcght,bctghw->bctghw", within[..., -1, :], x)
    added = nn.einsum("bctghw,bctgn->bcghwn", at_end, to_state)
    states = _between_chunks(nn, state, added, nn.sum(logs, -1))
    given = nn.einsum("bctgn,bcghwn->bctghw", from_state, states[:, :-1])
    y = y + nn.einsum("bcght,bctghw->bctghw", nn.exp(nn.cumsum(logs, -1)), given)
    return nn.flatten(y, 1, 2)[:, :tokens], states[:, -1]


def _between_chunks(nn: Any, state: Any, added: Any, logs: Any) -> Any:
    """Return the state before each chunk, and the one after the last.

    The first one comes; each chunk lets it decay and adds to it.
    """
    states = nn.concatenate([nn.unsqueeze(state, 1), added], dim=1)
    logs = nn.pad(nn.permute(logs, (0, 2, 3, 1)), (1, 0))
    return nn.einsum("bghsc,bcghwn->bsghwn", decays(nn, logs), states)


def _chunks(nn: Any, x: Any, size: int) -> Any:
    """Turn ``(batch, tokens, ...)`` into ``(batch, chunks, size, ...)``, with zeros at the end."""
    pads = [(0, -x.shape[1] % size)] + [(0, 0)] * (x.ndim - 2)
    return nn.unflatten(nn.pad(x, pads), 1, (-1, size))


def decays(nn: Any, logs: Any) -> Any:
    """Return the products of decays after each step, up to itself and each later one.

    Logarithms ``(..., steps)`` give ``(..., steps, steps)``, the earlier step along the last axis;
    where it is the later one, 0. No sum is a difference of longer ones, which would lose digits.
    """
    square = nn.broadcast_to(nn.unsqueeze(logs, -1), (*logs.shape, logs.shape[-1]))
    return nn.tril(nn.exp(nn.cumsum(nn.tril(square, -1), -2)))


class Layer(Network):
    """A mixer, after a normalisation and beside a shortcut."""

    def __init__(self, width: int, **mixer: Any) -> None:
        super().__init__()
        self.norm = self.nn.RMSNorm(width, EPS)
        self.mixer = Mixer(width, **mixer)

    def forward(self, x, valid=None, cache=None):
        normed = self.norm(x)
        if valid is not None:
            normed = normed * valid
        return x + self.mixer(normed, valid, cache)


class Body(Decoder):
    """The decoder without its head, Hugging Face's ``Mamba2Model``.

    Shapes:
        Tokens and mask ``(batch, tokens)`` give ``(batch, tokens, width)``.
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, num_hidden_layers: int, **mixer: Any
    ) -> None:
        super().__init__()
        nn = self.nn
        self.embeddings = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.ModuleList(
            [Layer(hidden_size, **mixer) for _ in range(num_hidden_layers)]
        )
        self.norm_f = nn.RMSNorm(hidden_size, EPS)

    def forward_stages(self, input_ids, attention_mask=None, cache=None):
        """See `Mamba2.forward_stages`; with a cache the tokens are those that are new."""
        check_tokens(self, input_ids)
        x = self.embeddings(input_ids)
        valid = self._valid(input_ids, attention_mask, cache, x)
        outputs = each_output(x, self.layers, valid, cache)
        last = {"norm": self.norm_f(outputs[-1])}
        return {"embedding": x} | numbered("layer", outputs, 1) | last

    def _valid(self, tokens, attention_mask, cache, like):
        """Return ones for tokens and zeros for padding, ``(batch, tokens, 1)``; None for ones."""
        if cache is not None:
            attention_mask = cache.valid(tokens)
        elif attention_mask is None:
            return None
        else:
            check_mask(self, attention_mask, tokens, "attention_mask")
        return self.nn.unsqueeze(self.nn.cast(attention_mask, like), 2)


class Mamba2(LanguageModel):
    """A language model without attention: a state of fixed size has all that came before.

    Source: Dao and Gu 2024, arXiv 2405.21060. Names, order, shapes and start values are those of
    Hugging Face's ``Mamba2ForCausalLM``.

    Args:
        vocab_size: Number of different tokens.
        hidden_size: Width of the tokens; the layers are twice as wide inside.
        num_hidden_layers: Number of layers.
        state_size: Number of states of each channel.
        head_dim: Number of channels of a head, which decay alike.
        n_groups: Number of groups of heads; each has its own maps into the states and out of them.
        chunk_size: Number of tokens, at most, that are computed by one matrix product. It changes
            no result.
        tie_word_embeddings: Whether ``lm_head.weight`` is the embedding's own table.

    Shapes:
        ``input_ids`` ``(batch, tokens)``, and if given ``attention_mask`` (one for tokens, zero for
        padding) of the same shape, give logits ``(batch, tokens, vocab_size)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: An input has another shape.
        IndexRangeError: A token is not below `vocab_size`.
    """

    body = "backbone"
    max_tokens = None
    keymaps = (
        KeyMap("Mamba2Model", by_patterns({r"backbone\.(.*)": r"\1"})),
        KeyMap(
            "state-spaces",
            by_patterns(
                {
                    r"backbone\.embeddings\.(.*)": r"backbone.embedding.\1",
                    r"(.*)": r"\1",
                }
            ),
        ),
    )
    start_values = {
        "*.embeddings.weight": START,
        "*.in_proj.weight": START,
        "lm_head.weight": START,
        "*.conv1d.bias": ZEROS,
    }

    def __init__(
        self,
        vocab_size: int = 50288,
        hidden_size: int = 768,
        num_hidden_layers: int = 24,
        state_size: int = 128,
        head_dim: int = 64,
        n_groups: int = 1,
        chunk_size: int = 256,
        tie_word_embeddings: bool = True,
    ) -> None:
        super().__init__()
        sizes = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": num_hidden_layers,
            "state_size": state_size,
            "head_dim": head_dim,
            "n_groups": n_groups,
            "chunk_size": chunk_size,
        }
        positive("Mamba2", **sizes)
        inner = EXPANSION * hidden_size
        checks.divides(inner, head_dim, "Mamba2: 2 * hidden_size", "head_dim")
        checks.divides(inner // head_dim, n_groups, "Mamba2: heads", "n_groups")
        self.vocab_size = vocab_size
        self.backbone = Body(**sizes)
        self.lm_head = self.nn.Linear(hidden_size, vocab_size, bias=False)
        if tie_word_embeddings:
            self.lm_head.weight = self.backbone.embeddings.weight


# name: (width, layers, parameters)
_VARIANTS = {
    "mamba2_130m": (768, 24, 128_989_632),
    "mamba2_370m": (1024, 48, 368_346_624),
    "mamba2_780m": (1536, 48, 780_161_280),
    "mamba2_1_3b": (2048, 48, 1_343_757_312),
    "mamba2_2_7b": (2560, 64, 2_702_599_680),
}

register_each(
    Mamba2,
    by_column(("hidden_size", "num_hidden_layers"), _VARIANTS),
    task="language modelling",
    dims=(1,),
    source="Dao and Gu 2024, arXiv 2405.21060; Hugging Face Mamba2ForCausalLM",
    shape=lambda settings: Input((1024,), below=settings["vocab_size"]),
)
