"""BERT, beside Hugging Face's."""

from functools import partial

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case

transformers = Later("transformers")

SMALL = {
    "vocab_size": 13,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def reference(model="BertModel", dropout=0.1, attention_dropout=0.1, **settings):
    """One of Hugging Face's models."""
    config = transformers.BertConfig(
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=attention_dropout,
        attn_implementation="eager",
        **settings,
    )
    return getattr(transformers, model)(config)


def outputs(model, *inputs):
    """The outputs as a dict."""
    came = model(*inputs)
    return {
        "last_hidden_state": came.last_hidden_state,
        "pooler_output": came.pooler_output,
    }


def _full(layers, width, heads):
    return partial(
        reference,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )


FULL = {
    "bert_tiny": _full(2, 128, 2),
    "bert_mini": _full(4, 256, 4),
    "bert_small": _full(4, 512, 8),
    "bert_medium": _full(8, 512, 8),
    "bert_base_uncased": _full(12, 768, 12),
    "bert_large_uncased": _full(24, 1024, 16),
}

CLASSIFIER = SMALL | {"num_hidden_layers": 1, "type_vocab_size": 3}

CASES = [
    Case(
        "bert_base_uncased",
        SMALL,
        covers=tuple(FULL),
        reference=partial(reference, **SMALL),
        call=outputs,
        zero=("*.key.bias",),
    ),
    Case(
        "bert_tiny",
        CLASSIFIER | {"num_classes": 4},
        [Input((7,), below=13), Input((7,), below=2), Input((7,), below=3)],
        of="classifier",
        zero=("*.key.bias",),
        reference=partial(
            reference, "BertForSequenceClassification", num_labels=4, **CLASSIFIER
        ),
        call=lambda model, tokens, mask, segments: model(tokens, mask, segments).logits,
    ),
]
