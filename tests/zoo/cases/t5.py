"""T5 and FLAN-T5, beside Hugging Face's."""

from functools import partial

import torch

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.gpt2 import Mask
from tests.zoo.cases.llama import in_double_precision

transformers = Later("transformers")

SMALL = {
    "vocab_size": 11,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 10,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 3,
    "dropout": 0.0,
}
GATED = SMALL | {"num_layers": 1, "num_decoder_layers": 2}


def reference(dropout=0.1, tie_word_embeddings=True, **settings):
    """Hugging Face's model; one with a head of its own has it as the published files do."""
    config = transformers.T5Config(
        dropout_rate=dropout,
        tie_word_embeddings=tie_word_embeddings,
        decoder_start_token_id=0,
        attn_implementation="sdpa",
        use_cache=False,
        **settings,
    )
    model = transformers.T5ForConditionalGeneration(config)
    if not tie_word_embeddings:  # the library ties them since version 5
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight))
    return model


def logits(model, tokens, answer, mask=None):
    """The outputs as an array."""
    with in_double_precision():
        return model(
            input_ids=tokens, decoder_input_ids=answer, attention_mask=mask
        ).logits


_BASE = {"d_model": 768, "num_layers": 12, "num_heads": 12}
_LARGE = {"d_model": 1024, "num_layers": 24, "num_heads": 16}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

T5S = {
    "t5_small": reference,
    "t5_base": partial(reference, d_ff=3072, **_BASE),
    "t5_large": partial(reference, d_ff=4096, **_LARGE),
}
FLANS = {
    "flan_t5_small": partial(reference, d_ff=1024, num_layers=8, num_heads=6, **_GATED),
    "flan_t5_base": partial(reference, d_ff=2048, **_BASE, **_GATED),
    "flan_t5_large": partial(reference, d_ff=2816, **_LARGE, **_GATED),
}
FULL = T5S | FLANS

CASES = [
    Case(
        "t5_small",
        SMALL,
        [Input((9,), below=11), Input((5,), below=11)],
        covers=tuple(T5S),
        reference=partial(reference, **SMALL),
        call=logits,
    ),
    Case(
        "flan_t5_small",
        GATED,
        [Input((7,), below=11), Input((9,), below=11), Mask((7,), below=2)],
        covers=tuple(FLANS),
        reference=partial(reference, **GATED, **_GATED),
        call=logits,
    ),
]
