"""Llama, Qwen and Gemma, beside Hugging Face's."""

from contextlib import contextmanager
from functools import partial
from unittest import mock

import torch

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.gpt2 import Mask

transformers = Later("transformers")

SCALING = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}
SMALL = {
    "vocab_size": 11,
    "hidden_size": 12,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}
LLAMA3 = SMALL | {
    "num_key_value_heads": 3,
    "rope_scaling": SCALING,
    "tie_word_embeddings": True,
}
QWEN2 = SMALL | {"qkv_bias": True, "num_hidden_layers": 1}
QWEN3 = SMALL | {
    "qk_norm": True,
    "head_dim": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# A width whose square root is exact: the reference has it in single precision.
GEMMA = SMALL | {
    "hidden_size": 16,
    "head_dim": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 7,
    "tie_word_embeddings": True,
    "qk_norm": True,
    "gemma": True,
    "query_pre_attn_scalar": 9,
    "sliding_window": 3,
    "rope_local_base_freq": 10.0,
}


@contextmanager
def in_double_precision():
    """Hugging Face's models compute norms and angles in single precision whatever their type; what
    they call so is here the double one."""
    with (
        mock.patch.multiple(torch, float=torch.float64, float32=torch.float64),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


def reference(
    qkv_bias=False,
    qk_norm=False,
    rope_theta=10000.0,
    rope_scaling=None,
    eps=1e-5,
    **settings,
):
    """Hugging Face's language model of the kind that these settings make."""
    kind = "Qwen2" if qkv_bias else "Qwen3" if qk_norm else "Llama"
    defaults = {"num_key_value_heads": None, "head_dim": None, "rms_norm_eps": eps}
    if kind == "Qwen2" and settings.get("head_dim") is None:
        del defaults["head_dim"]
    config = getattr(transformers, f"{kind}Config")(
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta}
        | (rope_scaling or {}),
        attn_implementation="sdpa",
        use_cache=False,
        **defaults | settings,
    )
    with in_double_precision():
        return getattr(transformers, f"{kind}ForCausalLM")(config)


def gemma(rope_theta, rope_local_base_freq, **settings):
    """Hugging Face's Gemma 3 over text."""
    for ours in ("qk_norm", "gemma", "rope_scaling"):
        settings.pop(ours, None)
    plain = {"rope_type": "default"}
    config = transformers.Gemma3TextConfig(
        rope_parameters={
            "full_attention": plain | {"rope_theta": rope_theta},
            "sliding_attention": plain | {"rope_theta": rope_local_base_freq},
        },
        attn_implementation="sdpa",
        use_cache=False,
        pad_token_id=None,
        **settings,
    )
    with in_double_precision():
        return transformers.Gemma3ForCausalLM(config)


def logits(model, tokens, mask=None):
    """The outputs as an array."""
    with in_double_precision():
        return model(tokens, attention_mask=mask).logits


# Read off the published configurations, not computed from the zoo's table.
_LLAMA3 = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 5e5,
    "rope_scaling": SCALING
    | {"factor": 32.0, "original_max_position_embeddings": 8192},
}


def _full(width, inner, layers, heads, key_heads, **settings):
    return partial(
        reference,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        **settings,
    )


_TIED = {"tie_word_embeddings": True}
_SMOL = {
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 1e5,
} | _TIED
_QWEN2 = {"vocab_size": 151936, "qkv_bias": True, "rope_theta": 1e6}
_QWEN3 = {"vocab_size": 151936, "qk_norm": True, "head_dim": 128, "rope_theta": 1e6}

LLAMAS = {
    "llama_2_7b": _full(4096, 11008, 32, 32, 32),
    "llama_3_1_8b": _full(4096, 14336, 32, 32, 8, **_LLAMA3),
    "llama_3_2_1b": _full(2048, 8192, 16, 32, 8, **_LLAMA3, **_TIED),
    "llama_3_2_3b": _full(3072, 8192, 28, 24, 8, **_LLAMA3, **_TIED),
    "tinyllama_1_1b": _full(2048, 5632, 22, 32, 4),
    "smollm2_135m": _full(576, 1536, 30, 9, 3, **_SMOL),
    "smollm2_360m": _full(960, 2560, 32, 15, 5, **_SMOL),
}
QWEN2S = {
    "qwen2_5_0_5b": _full(896, 4864, 24, 14, 2, **_QWEN2, **_TIED),
    "qwen2_5_1_5b": _full(1536, 8960, 28, 12, 2, **_QWEN2, **_TIED),
    "qwen2_5_7b": _full(3584, 18944, 28, 28, 4, **_QWEN2 | {"vocab_size": 152064}),
}
QWEN3S = {
    "qwen3_0_6b": _full(1024, 3072, 28, 16, 8, **_QWEN3, **_TIED),
    "qwen3_1_7b": _full(2048, 6144, 28, 16, 8, **_QWEN3, **_TIED),
    "qwen3_4b": _full(2560, 9728, 36, 32, 8, **_QWEN3, **_TIED),
    "qwen3_8b": _full(4096, 12288, 36, 32, 8, **_QWEN3),
}
_GEMMA = {
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "vocab_size": 262144,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
}


def _full_gemma(width, inner, layers):
    return partial(
        gemma,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        **_GEMMA,
    )


GEMMAS = {
    "gemma_3_270m": _full_gemma(640, 2048, 18),
    "gemma_3_1b": _full_gemma(1152, 6912, 26),
}
FULL = LLAMAS | QWEN2S | QWEN3S | GEMMAS

CASES = [
    Case(
        "llama_3_2_1b",
        LLAMA3,
        covers=tuple(LLAMAS),
        reference=partial(reference, **LLAMA3),
        call=logits,
    ),
    Case(
        "qwen2_5_0_5b",
        QWEN2,
        [Input((7,), below=11), Mask((7,), below=2)],
        covers=tuple(QWEN2S),
        reference=partial(reference, **QWEN2),
        call=logits,
        zero=("*.k_proj.bias",),
    ),
    Case(
        "qwen3_0_6b",
        QWEN3,
        covers=tuple(QWEN3S),
        reference=partial(reference, **QWEN3),
        call=logits,
    ),
    Case(
        "gemma_3_270m",
        GEMMA,
        [Input((7,), below=11), Mask((7,), below=2)],
        covers=tuple(GEMMAS),
        reference=partial(gemma, **GEMMA),
        call=logits,
    ),
]
