"""Generation of text, token by token, the same on every backend."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import random
from deliralike.errors import CapabilityError, SettingError, ShapeError
from deliralike.nn import checks
from deliralike.zoo.sequences.cache import KeyValueCache

# Prompts and caches are padded to a multiple of this, so that texts of nearly the same length share
# their compiled programs.
_BLOCK = 32


def generate(
    network: Any,
    tokens: Any,
    max_new_tokens: int = 20,
    *,
    features: Any = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    eos_token_id: int | Collection[int] | None = None,
) -> Any:
    """Continue texts by a language model of the zoo, or answer them by an encoder-decoder.

    An encoder-decoder that reads no text, such as `Whisper`, continues the texts, too.

    Each token is computed from the keys and values of those before it, which are kept. The same
    weights give the same tokens on every backend; a draw depends on the seed, the place of the
    text in the batch and the number of the token alone.

    Args:
        network: A network that has a method ``next_logits``, such as `GPT2`, `Llama` or `T5`.
        tokens: One text, whole numbers ``(tokens,)``; or several, of any lengths.
        max_new_tokens: The number of tokens after which to stop.
        features: What the encoder reads where it reads no text, an array ``(texts, ...)``: for
            `Whisper` log-mel spectrograms.
        temperature: 0 for the most probable token at each step; otherwise tokens are drawn from the
            softmax of the logits divided by it.
        top_k: Draw from so many of the most probable tokens; from all when None.
        top_p: Draw from the most probable tokens that have this probability together; from all
            when None.
        seed: The seed of the draws.
        eos_token_id: The token that ends a text, or several such tokens; it is returned as the last
            one.

    Returns:
        The tokens of one text, an array of int64, or a list of such arrays. A language model's
        begin with the text that came; an encoder-decoder's are the answer alone.

    Raises:
        CapabilityError: The network generates no text.
        SettingError: A setting makes no sense, the tokens are no whole numbers, or `features` are
            missing or unwanted.
        ShapeError: There is no text, or one has no tokens, or becomes longer than the network can
            read; or there are not as many `features` as texts.
        IndexRangeError: A token is not in the vocabulary.

    Example:
        >>> from deliralike import zoo
        >>> network = zoo.build("gpt_mini", backend="torch", n_layer=1)
        >>> [len(text) for text in zoo.generate(network, [[5, 2, 3], [4]], max_new_tokens=7)]
        [10, 8]
    """
    if not hasattr(network, "next_logits"):
        raise CapabilityError(
            f"{type(network).__name__} generates no text: that takes a language model such as "
            "zoo.build('gpt2', ...)"
        )
    checks.positive(max_new_tokens, "max_new_tokens", "generate")
    choose = Choice(temperature, top_k, top_p, seed)
    texts, is_single = _texts(tokens, network.vocab_size)
    ends = _ends(eos_token_id)
    _check_features(network, features, len(texts))
    backend = network.backend
    with network.training_mode(False), backend.evaluating():
        memory: Any = ()
        if features is not None:
            inputs = backend.prepare(features, network)
            memory = backend.program(_encode_features, network)(inputs)
        elif hasattr(network, "encode"):
            memory = _encoded(network, texts)
            texts = [np.array([network.decoder_start_token_id])] * len(texts)
        _check_lengths(network, texts, max_new_tokens)
        added = _continued(network, texts, memory, max_new_tokens, choose, ends)
    if hasattr(network, "encode"):
        results = added
    else:
        results = [np.concatenate(pair) for pair in zip(texts, added, strict=True)]
    return results[0] if is_single else results


@dataclass(frozen=True)
class Choice:
    """The choice of the next token from logits, on the host; see `generate`.

    Raises:
        SettingError: A setting makes no sense.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.temperature >= 0.0:
            raise SettingError(
                f"generate: temperature={self.temperature!r}; wanted at least 0"
            )
        if self.top_k is not None:
            checks.positive(self.top_k, "top_k", "generate")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise SettingError(
                f"generate: top_p={self.top_p!r}; wanted a number above 0, up to 1"
            )
        is_limited = self.top_k is not None or self.top_p is not None
        if self.temperature == 0.0 and is_limited:
            raise SettingError(
                f"generate: top_k={self.top_k!r} and top_p={self.top_p!r} limit what is drawn, and "
                "with temperature=0 nothing is: give temperature=1.0"
            )

    def __call__(self, logits: np.ndarray, step: int) -> np.ndarray:
        """Return the next token of each text.

        Shapes:
            ``(batch, vocabulary)`` gives ``(batch,)``.
        """
        if self.temperature == 0.0:
            return logits.argmax(axis=1)
        drawn = []
        for sample, row in enumerate(logits.astype(np.float64)):
            number = random.uniform(self.seed, "generate", step, sample)
            drawn.append(self._drawn(row, number))
        return np.array(drawn)

    def _drawn(self, logits: np.ndarray, number: float) -> int:
        """Return the token at a number from 0 to 1 on the line of kept probabilities."""
        order = np.argsort(-logits, kind="stable")[: self.top_k]
        scaled = (logits[order] - logits[order[0]]) / self.temperature
        powers = np.exp(scaled)
        if self.top_p is not None:
            before = np.cumsum(powers) - powers
            powers = powers[before < self.top_p * powers.sum()]
        line = np.cumsum(powers)
        place = np.searchsorted(line, number * line[-1], side="right")
        return int(order[min(place, len(line) - 1)])


def _texts(tokens: Any, vocabulary: int) -> tuple[list[np.ndarray], bool]:
    """Return the texts that came, and whether one came that was in no list."""
    is_single = len(tokens) > 0 and np.ndim(tokens[0]) == 0
    texts = []
    for number, text in enumerate([tokens] if is_single else tokens):
        name = "generate: tokens" if is_single else f"generate: tokens[{number}]"
        array = np.asarray(text)
        if array.ndim != 1 or array.size == 0:
            raise ShapeError(
                f"{name}: got shape {array.shape}, wanted (tokens,), at least one"
            )
        checks.whole_numbers(array, name)
        checks.index_range(array, vocabulary, name)
        texts.append(array.astype(np.int64))
    if not texts:
        raise ShapeError("generate: got no text, wanted at least one")
    return texts, is_single


def _ends(eos_token_id: int | Collection[int] | None) -> list[int]:
    if eos_token_id is None:
        return []
    if isinstance(eos_token_id, Collection):
        return list(eos_token_id)
    return [eos_token_id]


def _check_features(network: Any, features: Any, count: int) -> None:
    what = type(network).__name__
    is_wanted = hasattr(network, "encode_features")
    if is_wanted and features is None:
        raise SettingError(
            f"generate: {what} writes what it hears: give features=, a spectrogram for each text"
        )
    if features is None:
        return
    if not is_wanted:
        raise SettingError(f"generate: {what} reads tokens alone: leave features out")
    if len(features) != count:
        raise ShapeError(
            f"generate: got features of shape {np.shape(features)} for {count} texts, wanted "
            "(texts, ...)"
        )


def _check_lengths(network: Any, texts: Sequence[np.ndarray], more: int) -> None:
    longest = max(map(len, texts))
    limit = network.max_tokens
    if limit is not None and longest + more > limit:
        raise ShapeError(
            f"generate: a text of {longest} tokens and {more} new ones have no place in the "
            f"{limit} positions of {type(network).__name__}: cut it, or lower max_new_tokens"
        )


def _continued(
    network: Any,
    texts: Sequence[np.ndarray],
    memory: Any,
    most: int,
    choose: Choice,
    ends: Sequence[int],
) -> list[np.ndarray]:
    """Return what follows on each text, up to an end or so many tokens."""
    backend = network.backend
    run = backend.program(_step, network)
    prompts, starts = _padded_before(texts)
    width = prompts.shape[1]
    slots = np.arange(_rounded_up(width + most))
    slots, starts = backend.prepare((slots, starts), network)
    new = prompts
    position = 0
    layers = ()
    columns: list[np.ndarray] = []
    is_open = np.full(len(texts), True)
    while len(columns) < most and is_open.any():
        inputs = backend.prepare((new, np.array([position])), network)
        logits, layers = run(*inputs, slots, starts, layers, memory)
        chosen = choose(backend.numpy(logits), len(columns))
        columns.append(np.where(is_open, chosen, -1))
        is_open &= ~np.isin(chosen, ends)
        position += new.shape[1]
        new = chosen[:, None]
    rows = np.stack(columns, axis=1)
    return [row[row >= 0] for row in rows]


def _step(
    network: Any,
    new: Any,
    position: Any,
    slots: Any,
    starts: Any,
    layers: Any,
    memory: Any,
) -> tuple[Any, Any]:
    """Return the logits after new tokens, and the keys and values of all tokens."""
    cache = KeyValueCache(network.nn, slots, position, starts, layers)
    return network.next_logits(new, cache, *memory), cache.layers


def _encoded(network: Any, texts: Sequence[np.ndarray]) -> Any:
    """Return what a decoder needs of the encoder's outputs."""
    backend = network.backend
    prompts, starts = _padded_before(texts)
    mask = np.arange(prompts.shape[1]) >= starts[:, None]
    inputs = backend.prepare((prompts, mask.astype(np.int64)), network)
    return backend.program(_encode, network)(*inputs)


def _encode(network: Any, tokens: Any, mask: Any) -> Any:
    return network.encode(tokens, mask)


def _encode_features(network: Any, features: Any) -> Any:
    return network.encode_features(features)


def _padded_before(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return texts that end at the same place, and the places where they begin."""
    width = _rounded_up(max(map(len, texts)))
    prompts = np.zeros((len(texts), width), np.int64)
    starts = np.array([width - len(text) for text in texts])
    for row, start, text in zip(prompts, starts, texts, strict=True):
        row[start:] = text
    return prompts, starts


def _rounded_up(count: int) -> int:
    return -(-count // _BLOCK) * _BLOCK
