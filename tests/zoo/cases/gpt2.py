"""GPT-2, beside Hugging Face's."""

from functools import partial

import numpy as np

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case

transformers = Later("transformers")

SMALL = {
    "vocab_size": 11,
    "n_positions": 8,
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def reference(vocab_size=50257, dropout=0.1, attention_dropout=0.1, **settings):
    """Hugging Face's language model."""
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=attention_dropout,
        attn_implementation="eager",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        **settings,
    )
    return transformers.GPT2LMHeadModel(config)


class Mask(Input):
    """Padding at the end of the first samples. Where it stands before all tokens, its own outputs
    mean nothing."""

    def draw(self, generator, batch, dtype="float32"):
        valid = self.shape[0] - batch + 1 + np.arange(batch)
        return (np.arange(self.shape[0]) < valid[:, None]).astype(np.int64)


FULL = {
    "gpt_mini": partial(
        reference, vocab_size=65, n_positions=128, n_embd=192, n_layer=6, n_head=6
    ),
    "gpt2": reference,
    "gpt2_medium": partial(reference, n_embd=1024, n_layer=24, n_head=16),
    "gpt2_large": partial(reference, n_embd=1280, n_layer=36, n_head=20),
    "gpt2_xl": partial(reference, n_embd=1600, n_layer=48, n_head=25),
}

CASES = [
    Case(
        "gpt2",
        SMALL,
        covers=tuple(FULL),
        reference=partial(reference, **SMALL),
        call=lambda model, tokens: model(tokens).logits,
    ),
    Case(
        "gpt_mini",
        SMALL | {"n_layer": 1, "n_inner": 10},
        [Input((7,), below=11), Mask((7,), below=2)],
        of="masked",
        reference=partial(reference, **SMALL | {"n_layer": 1, "n_inner": 10}),
        call=lambda model, tokens, mask: model(tokens, attention_mask=mask).logits,
    ),
]
