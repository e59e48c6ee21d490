"""Generation of text: the tokens of transformers, the same on every backend, and its settings."""

from functools import cache

import numpy as np
import pytest
import torch

from deliralike import random, zoo
from deliralike.errors import CapabilityError, IndexRangeError, SettingError, ShapeError
from deliralike.zoo.sequences.generation import Choice
from deliralike.zoo.sequences.llama import Llama
from tests.references import Later
from tests.zoo.case import arrays_of
from tests.zoo.cases import gpt2, llama, mamba2, t5, whisper

transformers = Later("transformers")

PROMPTS = [[5, 2, 3, 7], [4], [9, 9, 1, 2, 3, 8, 8]]
NEW = 9
LONG = {"max_position_embeddings": 30}
SAME = {
    "num_layers": 2,
    "num_decoder_layers": 2,
}  # the cache of transformers takes no others
# the zoo's name: settings, and the reference with them
MODELS = {
    "gpt2": (gpt2.SMALL | {"n_positions": 30}, gpt2.reference),
    "llama_3_2_1b": (llama.LLAMA3 | LONG, llama.reference),
    "qwen2_5_0_5b": (llama.QWEN2 | LONG, llama.reference),
    "qwen3_0_6b": (llama.QWEN3 | LONG, llama.reference),
    "gemma_3_270m": (llama.GEMMA | LONG, llama.gemma),
    "mamba2_130m": (mamba2.SMALL, mamba2.reference),
    "t5_small": (t5.SMALL | SAME, t5.reference),
    "flan_t5_small": (t5.GATED | t5._GATED | SAME, t5.reference),
    "whisper_tiny": (whisper.SMALL | {"max_target_positions": 30}, whisper.reference),
}
HEARD = "whisper_tiny"  # continues texts, by a spectrogram for each
SAMPLED = {"temperature": 1.3, "top_k": 7, "top_p": 0.8, "seed": 3}


@cache
def reference(name):
    """The model of transformers, with weights that are large enough for tokens to change."""
    settings, make = MODELS[name]
    torch.manual_seed(4)
    model = make(**settings).double().eval()
    tables = {
        id(model.get_input_embeddings().weight),
        id(model.get_output_embeddings().weight),
    }
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and id(parameter) not in tables:
                parameter *= 0.6 / parameter.std()
    return model


def spectrograms():
    """One for each prompt."""
    return np.random.default_rng(6).standard_normal((len(PROMPTS), 4, 10))


@cache
def network(name, backend):
    settings, _ = MODELS[name]
    built = zoo.build(name, backend=backend, dtype="float64", **settings)
    state = arrays_of(reference(name))
    built.load_neutral_state(state)
    return built


def theirs(name, prompt, **settings):
    """What transformers generates from one text, without padding."""
    with llama.in_double_precision():
        (row,) = reference(name).generate(
            torch.tensor([prompt]),
            max_new_tokens=NEW,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            **{"eos_token_id": None} | settings,
        )
    return row.tolist()[1:] if "t5" in name else row.tolist()


@cache
def ours(name, backend, sampled=False):
    texts = zoo.generate(
        network(name, backend), PROMPTS, NEW, **SAMPLED if sampled else {}
    )
    return [text.tolist() for text in texts]


def transcripts(backend, features):
    texts = zoo.generate(network(HEARD, backend), PROMPTS, NEW, features=features)
    return [text.tolist() for text in texts]


# The tokens
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MODELS if name != HEARD])
def test_the_most_probable_tokens_are_those_of_transformers(name):
    """Texts of several lengths at once, against each alone."""
    wanted = [theirs(name, prompt) for prompt in PROMPTS]
    assert ours(name, "torch") == wanted
    assert len({token for text in wanted for token in text[-NEW:]}) > 2


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["gpt2", "qwen3_0_6b", "mamba2_130m", "flan_t5_small"])
def test_every_backend_generates_the_same_tokens(name, sampled, backend):
    assert ours(name, backend.name, sampled) == ours(name, "torch", sampled)
    assert (ours(name, "torch", True) == ours(name, "torch", False)) is False


def test_transcripts_go_on_as_those_of_transformers(backend):
    """Without the rules for tokens of OpenAI's vocabulary, which its class adds to the search."""
    generate = transformers.GenerationMixin.generate
    wanted = []
    for prompt, features in zip(PROMPTS, spectrograms(), strict=True):
        (row,) = generate(
            reference(HEARD),
            torch.from_numpy(features[None]),
            decoder_input_ids=torch.tensor([prompt]),
            max_new_tokens=NEW,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            eos_token_id=None,
        )
        wanted.append(row.tolist())
    assert transcripts(backend.name, spectrograms()) == wanted
    assert transcripts("torch", spectrograms()[::-1]) != wanted
    assert len({token for text in wanted for token in text[-NEW:]}) > 2


def test_a_text_ends_with_the_first_end_token():
    name = "qwen3_0_6b"
    whole = ours(name, "torch")
    ends = {whole[0][6], whole[1][4]}
    came = zoo.generate(network(name, "torch"), PROMPTS, NEW, eos_token_id=ends)
    for prompt, text, longer in zip(PROMPTS, came, whole, strict=True):
        new = longer[len(prompt) :]
        stops = [place for place, token in enumerate(new, 1) if token in ends]
        assert text.tolist() == prompt + new[: min(stops, default=NEW)]
        assert text.tolist() == theirs(name, prompt, eos_token_id=list(ends))
    assert (
        len(
            {
                len(text) - len(prompt)
                for text, prompt in zip(came, PROMPTS, strict=True)
            }
        )
        > 1
    )


def test_a_compiled_step_serves_texts_of_all_lengths(backend, monkeypatch):
    """JAX runs Python where it compiles alone: once for the first tokens and once for a step."""
    settings = llama.SMALL | {"vocab_size": 13, "max_position_embeddings": 64}
    net = zoo.build("tinyllama_1_1b", backend=backend, **settings)
    calls = []
    plain = Llama.next_logits
    monkeypatch.setattr(
        type(net),
        "next_logits",
        lambda *args: calls.append(args[1].shape[1]) or plain(*args),
    )
    for length in (3, 17):
        zoo.generate(net, [np.arange(length) % 13], 10 + length // 3)
    assert set(calls) == {32, 1}
    if backend.name == "jax":
        assert sorted(calls) == [1, 32]


# The draw
# -----------------------------------------------------------------------------

LIMITS = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 1.0, "top_k": 3},
    {"temperature": 2.0, "top_p": 0.7},
    {"temperature": 0.8, "top_k": 5, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 1e-9},
]


def probabilities(scores, temperature, top_k=None, top_p=None):
    """Those of transformers' processors of logits."""
    processors = [transformers.TemperatureLogitsWarper(temperature)]
    if top_k is not None:
        processors.append(transformers.TopKLogitsWarper(top_k))
    if top_p is not None:
        processors.append(transformers.TopPLogitsWarper(top_p))
    scores = torch.from_numpy(scores)[None]
    for processor in processors:
        scores = processor(None, scores)
    return scores.softmax(dim=-1)[0].numpy()


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_tokens_are_drawn_with_the_probabilities_of_transformers(limits):
    scores = np.random.default_rng(2).standard_normal(7) * 1.5
    wanted = probabilities(scores, **limits)
    choose = Choice(**limits, seed=4)
    batch = np.tile(scores, (50, 1))
    drawn = np.concatenate([choose(batch, step) for step in range(80)])
    counts = np.bincount(drawn, minlength=7) / len(drawn)
    assert not counts[wanted == 0].any()
    np.testing.assert_allclose(counts, wanted, atol=4 / np.sqrt(len(drawn)) / 2)


def test_draws_differ_by_seed_step_and_text():
    scores = np.zeros((40, 1000))
    draws = [
        Choice(1.0, seed=seed)(scores, step) for seed, step in ((0, 0), (1, 0), (0, 1))
    ]
    assert len({tuple(draw) for draw in draws}) == 3
    assert all(len(set(draw)) > 30 for draw in draws)
    numbers = [random.uniform(0, "generate", 5, sample) for sample in range(500)]
    assert 0.0 <= min(numbers) < 0.02
    assert 0.98 < max(numbers) < 1.0


def test_a_text_is_drawn_alike_whatever_stands_beside_it():
    net = network("qwen3_0_6b", "torch")
    alone = zoo.generate(net, PROMPTS[:1], NEW, **SAMPLED)
    assert [text.tolist() for text in alone] == ours("qwen3_0_6b", "torch", True)[:1]


# Bad input
# -----------------------------------------------------------------------------

REFUSED = [
    ({}, [], ShapeError, "got no text"),
    ({}, [[1], []], ShapeError, r"tokens\[1\]: got shape \(0,\), wanted \(tokens,\)"),
    ({}, [[[1]]], ShapeError, r"tokens\[0\]: got shape \(1, 1\)"),
    ({}, [0.5, 1.0], SettingError, "wanted whole numbers"),
    ({}, [[1, 11]], IndexRangeError, r"tokens\[0\]: 11 is out of range"),
    ({"max_new_tokens": 0}, [1], SettingError, "max_new_tokens=0 must be"),
    (
        {"max_new_tokens": 29},
        [1, 2],
        ShapeError,
        "a text of 2 tokens and 29 new ones .* 30",
    ),
    ({"temperature": -1.0}, [1], SettingError, "temperature=-1.0; wanted at least 0"),
    (
        {"top_k": 3},
        [1],
        SettingError,
        "with temperature=0 nothing is: give temperature=1.0",
    ),
    ({"temperature": 1.0, "top_k": 0}, [1], SettingError, "top_k=0 must be"),
    (
        {"temperature": 1.0, "top_p": 0.0},
        [1],
        SettingError,
        "top_p=0.0; wanted a number above 0",
    ),
]


@pytest.mark.parametrize(("settings", "tokens", "error", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(settings, tokens, error, message):
    with pytest.raises(error, match=message):
        zoo.generate(network("gpt2", "torch"), tokens, **settings)


def test_features_that_do_not_fit_are_refused():
    heard = network(HEARD, "torch")
    with pytest.raises(
        SettingError, match="Whisper writes what it hears: give features="
    ):
        zoo.generate(heard, [1])
    with pytest.raises(
        SettingError, match="GPT2 reads tokens alone: leave features out"
    ):
        zoo.generate(network("gpt2", "torch"), [1], features=spectrograms())
    with pytest.raises(ShapeError, match=r"features of shape \(3, 4, 10\) for 1 texts"):
        zoo.generate(heard, [1], features=spectrograms())
    with pytest.raises(
        ShapeError, match="got spectrograms of 8 frames, wanted 10: pad"
    ):
        zoo.generate(heard, PROMPTS, features=spectrograms()[..., :8])


def test_a_network_that_generates_no_text_is_refused():
    with pytest.raises(CapabilityError, match="MLP generates no text: .* zoo.build"):
        zoo.generate(zoo.build("mlp", backend="torch"), [1])
