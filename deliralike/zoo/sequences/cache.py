"""What a language model keeps of the tokens so far, so that each is computed once."""

from collections.abc import Sequence
from typing import Any

from deliralike.zoo.sequences.tokens import FORBIDDEN, out_of_sight

Layer = tuple[Any, Any]


class KeyValueCache:
    """The keys and values of a text's tokens, or a state, for each layer of a decoder.

    The arrays have a slot for every token that the text will have, and the place of the new tokens
    is a number on the device: the shapes of a step never change, so that a backend that compiles
    programs compiles one for all steps. Texts of several lengths end at the same slot; the slots
    before a text's first token hold padding.

    Args:
        nn: The vocabulary.
        slots: The numbers of the slots, ``(slots,)``.
        position: The slot of the first new token, ``(1,)``.
        starts: The slot of each text's first token, ``(batch,)``.
        layers: Keys and values of each layer, ``(batch, heads, slots, width)``; none before the
            first tokens, which stand in the first slots.
    """

    def __init__(
        self, nn: Any, slots: Any, position: Any, starts: Any, layers: Sequence[Layer]
    ) -> None:
        """Take the arrays as they are."""
        self.nn = nn
        self.slots, self.position, self.starts = slots, position, starts
        self.before = layers
        self.layers: list[Layer] = []

    def extend(self, key: Any, value: Any) -> Layer:
        """Store the keys and values of new tokens, and return those of all slots.

        The layers of a decoder call it in turn, each once.

        Shapes:
            ``(batch, heads, tokens, width)`` gives ``(batch, heads, slots, width)``.
        """
        stored = self.stored()
        if stored is None:
            extended = self._padded(key), self._padded(value)
        else:
            extended = self._replaced(stored[0], key), self._replaced(stored[1], value)
        self.store(extended)
        return extended

    def stored(self) -> Layer | None:
        """Return what the next layer has stored; None before the first tokens."""
        return self.before[len(self.layers)] if self.before else None

    def store(self, layer: Layer) -> None:
        """Store what the next layer needs at the next step: a layer calls it once."""
        self.layers.append(layer)

    def places(self, tokens: Any) -> Any:
        """Return the slots of new tokens ``(batch, tokens)``: ``(1, tokens)``."""
        return self.nn.reshape(self.slots[: tokens.shape[1]] + self.position, (1, -1))

    def positions(self, tokens: Any) -> Any:
        """Return the number of each new token within its text; 0 for padding.

        Tokens ``(batch, tokens)`` give the same shape.
        """
        numbers = self.places(tokens) - self.nn.reshape(self.starts, (-1, 1))
        return self.nn.where(numbers > 0, numbers, numbers * 0)

    def valid(self, tokens: Any) -> Any:
        """Return which of new tokens ``(batch, tokens)`` are no padding, in the same shape."""
        return self.places(tokens) >= self.nn.reshape(self.starts, (-1, 1))

    def bias(self, tokens: Any, like: Any, window: int | None = None) -> Any:
        """Return the term of the scores that forbids attention to later tokens and to padding.

        With a window also to all but the last so many.

        Tokens ``(batch, tokens)`` give ``(batch, 1, tokens, slots)``.
        """
        nn = self.nn
        slots = nn.reshape(self.slots, (1, 1, 1, -1))
        places = nn.reshape(self.places(tokens), (1, 1, -1, 1))
        starts = nn.reshape(self.starts, (-1, 1, 1, 1))
        unseen = out_of_sight(nn, slots, places, window)
        forbidden = nn.logical_or(unseen, slots < starts)
        return nn.cast(forbidden, like) * FORBIDDEN

    def _padded(self, x: Any) -> Any:
        batch, heads, tokens, width = x.shape
        empty = self.nn.zeros(
            (batch, heads, self.slots.shape[0] - tokens, width), like=x
        )
        return self.nn.concatenate([x, empty], dim=2)

    def _replaced(self, stored: Any, new: Any) -> Any:
        """Return the stored slots with one of them replaced."""
        is_new = self.nn.reshape(self.slots == self.position, (1, 1, -1, 1))
        return self.nn.where(is_new, new, stored)
