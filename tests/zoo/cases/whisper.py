"""Whisper, beside Hugging Face's."""

from functools import partial

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case

transformers = Later("transformers")

SMALL = {
    "vocab_size": 11,
    "num_mel_bins": 4,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "num_attention_heads": 3,
    "ffn_dim": 10,
    "max_source_positions": 5,
    "max_target_positions": 8,
    "dropout": 0.0,
}


def reference(num_attention_heads=6, ffn_dim=1536, **settings):
    """Hugging Face's model. Its table of sines is a parameter that is not trained, here a buffer,
    as in the paper's code; it makes no token padding."""
    config = transformers.WhisperConfig(
        encoder_attention_heads=num_attention_heads,
        decoder_attention_heads=num_attention_heads,
        encoder_ffn_dim=ffn_dim,
        decoder_ffn_dim=ffn_dim,
        pad_token_id=None,
        use_cache=False,
        **settings,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    positions = model.model.encoder.embed_positions
    table = positions.weight.detach()
    del positions.weight
    positions.register_buffer("weight", table)
    return model


def logits(model, features, tokens):
    """The outputs as an array."""
    return model(input_features=features, decoder_input_ids=tokens).logits


def _full(width, layers, heads, **settings):
    sizes = {"d_model": width, "num_attention_heads": heads, "ffn_dim": 4 * width}
    layers = {"encoder_layers": layers, "decoder_layers": layers}
    return partial(reference, **sizes, **layers | settings)


_LARGE = {"vocab_size": 51866, "num_mel_bins": 128}

FULL = {
    "whisper_tiny": reference,
    "whisper_base": _full(512, 6, 8),
    "whisper_small": _full(768, 12, 12),
    "whisper_medium": _full(1024, 24, 16),
    "whisper_large_v3": _full(1280, 32, 20, **_LARGE),
    "whisper_large_v3_turbo": _full(1280, 32, 20, **_LARGE, decoder_layers=4),
}

CASES = [
    Case(
        "whisper_tiny",
        SMALL,
        [(4, 10), Input((7,), below=11)],
        covers=tuple(FULL),
        reference=partial(reference, **SMALL),
        call=logits,
    ),
]
