"""The base of decoders that predict the next token, and the stages of encoder-decoders."""

from collections.abc import Sequence
from typing import Any, ClassVar

from deliralike.network.base import Network
from deliralike.zoo.blocks import numbered
from deliralike.zoo.model import Model


class Decoder(Network):
    """A decoder without its head: its output is the last of its stages.

    Shapes:
        Tokens and mask ``(batch, tokens)`` give ``(batch, tokens, width)``.
    """

    def forward(self, input_ids, attention_mask=None, cache=None):
        return self.forward_stages(input_ids, attention_mask, cache)["norm"]


class LanguageModel(Model):
    """A decoder without a head, and a linear map to all tokens.

    Attributes:
        body: The name of the decoder, which takes tokens, a mask and a `KeyValueCache`.
    """

    head_paths = ("lm_head",)
    outputs = "vocab_size"
    channels_last = True
    body: ClassVar[str]

    def forward(self, input_ids, attention_mask=None):
        return self.lm_head(getattr(self, self.body)(input_ids, attention_mask))

    def next_logits(self, tokens, cache):
        """Return the logits after the last of new tokens; see `deliralike.zoo.generate`."""
        return self.lm_head(getattr(self, self.body)(tokens, cache=cache)[:, -1])

    def forward_stages(self, input_ids, attention_mask=None):
        """Return the embeddings, each layer, and the last normalisation.

        All are ``(batch, tokens, width)``.
        """
        return getattr(self, self.body).forward_stages(input_ids, attention_mask)


def named_outputs(stack: str, outputs: Sequence[Any]) -> dict[str, Any]:
    """Return the embeddings, layers and last normalisation of an encoder or a decoder by name.

    Example:
        >>> named_outputs("encoder", [1, 2, 3])
        {'encoder_embedding': 1, 'encoder_layer1': 2, 'encoder_norm': 3}
    """
    embedding, *layers, norm = outputs
    first = {f"{stack}_embedding": embedding}
    return first | numbered(f"{stack}_layer", layers, 1) | {f"{stack}_norm": norm}
