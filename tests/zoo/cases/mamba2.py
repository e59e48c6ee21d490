"""Mamba-2, beside Hugging Face's."""

from functools import partial

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.gpt2 import Mask
from tests.zoo.cases.llama import logits

transformers = Later("transformers")

SMALL = {
    "vocab_size": 11,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "state_size": 5,
    "head_dim": 4,
    "n_groups": 2,
    "chunk_size": 3,
}


def reference(hidden_size=768, head_dim=64, vocab_size=50288, **settings):
    """Hugging Face's model; its defaults are those of another network."""
    sizes = {"state_size": 128, "n_groups": 1, "num_hidden_layers": 24}
    config = transformers.Mamba2Config(
        hidden_size=hidden_size,
        num_heads=2 * hidden_size // head_dim,
        head_dim=head_dim,
        vocab_size=vocab_size,
        pad_token_id=0,
        use_cache=False,
        **{"tie_word_embeddings": True} | sizes | settings,
    )
    return transformers.Mamba2ForCausalLM(config)


class PaddingBefore(Mask):
    """Padding before the tokens, which would reach their state."""

    def draw(self, generator, batch, dtype="float32"):
        return super().draw(generator, batch, dtype)[:, ::-1].copy()


FULL = {
    "mamba2_130m": reference,
    "mamba2_370m": partial(reference, 1024, num_hidden_layers=48),
    "mamba2_780m": partial(reference, 1536, num_hidden_layers=48),
    "mamba2_1_3b": partial(reference, 2048, num_hidden_layers=48),
    "mamba2_2_7b": partial(reference, 2560, num_hidden_layers=64),
}

CASES = [
    Case(
        "mamba2_130m",
        SMALL,
        [Input((7,), below=11)],
        covers=tuple(FULL),
        reference=partial(reference, **SMALL),
        call=logits,
    ),
    Case(
        "mamba2_130m",
        SMALL | {"num_hidden_layers": 1, "n_groups": 1, "tie_word_embeddings": False},
        [Input((7,), below=11), PaddingBefore((7,), below=2)],
        of="masked",
        reference=partial(
            reference,
            **SMALL | {"num_hidden_layers": 1, "n_groups": 1},
            tie_word_embeddings=False,
        ),
        call=logits,
    ),
]
