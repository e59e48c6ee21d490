"""Networks over tokens: masks, lengths, ties, other layouts of files, bad input, counts."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import stats

from deliralike import backends, random, zoo
from deliralike.errors import IndexRangeError, SettingError, ShapeError
from deliralike.zoo.sequences.mamba2 import InverseSoftplus, scan
from deliralike.zoo.sequences.rotary import frequencies
from deliralike.zoo.sequences.t5 import Stack
from deliralike.zoo.sequences.whisper import sines_then_cosines
from tests.references import Later
from tests.zoo.case import assert_same, close, computed, on_torch, theirs
from tests.zoo.cases import CASES, bert, gpt2, llama, mamba2
from tests.zoo.programs import as_one_program

transformers = Later("transformers")

GPT = gpt2.SMALL
LLAMA = llama.QWEN3
BERT = bert.SMALL
ENCODER = {
    "num_classes": 3,
    "vocab_size": 11,
    "max_tokens": 8,
    "d_model": 12,
    "nhead": 3,
    "num_layers": 2,
    "dim_feedforward": 10,
    "dropout": 0.0,
}
RECURRENT = {
    "num_classes": 3,
    "vocab_size": 11,
    "in_features": 4,
    "hidden_size": 5,
    "num_layers": 2,
    "bidirectional": True,
}
NETWORKS = {
    "gpt2": GPT,
    "llama_3_2_1b": LLAMA,
    "mamba2_130m": mamba2.SMALL,
    "bert_tiny": BERT | {"num_classes": 3},
    "transformer_classifier": ENCODER,
    "lstm_classifier": RECURRENT,
    "gru_classifier": RECURRENT,
}


@cache
def network(backend, name, **settings):
    return zoo.build(
        name, backend=backend, dtype="float64", **NETWORKS[name] | settings
    ).eval()


def tokens(batch=2, count=7, below=11, seed=0):
    return np.random.default_rng(seed).integers(1, below, (batch, count))


def run(backend, net, *inputs):
    """The output; values of the inputs are checked."""
    with backend.evaluating():
        return backend.numpy(net(*[backend.prepare(x, net) for x in inputs]))


@cache
def program(backend):
    """Calls a network; one program for all tests of this file."""
    return as_one_program(backend, lambda net, *inputs: net(*inputs))


def quickly(backend, net, *inputs):
    """The output, by one program on JAX, which cannot look at the values of its inputs."""
    with backend.evaluating():
        arrays = [backend.prepare(x, net) for x in inputs]
        return backend.numpy(program(backend)(net, *arrays))


# What is seen and what is not
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama_3_2_1b", "mamba2_130m"])
def test_a_language_model_does_not_look_ahead(name):
    backend = backends.get("torch")
    net, x = network(backend, name), tokens()
    before = quickly(backend, net, x)
    x[:, 4] = x[:, 4] % 10 + 1
    after = quickly(backend, net, x)
    assert_array_equal(after[:, :4], before[:, :4])
    assert (np.abs(after[:, 4:] - before[:, 4:]).max(axis=2) > 1e-6).all()


def end(name, valid, count):
    """The argument that marks all after the first `valid` of `count` tokens as padding."""
    is_valid = (np.arange(count) < np.asarray(valid)[:, None]).astype(np.int64)
    masks = {
        "gpt2": is_valid,
        "llama_3_2_1b": is_valid,
        "mamba2_130m": is_valid,
        "bert_tiny": is_valid,
        "transformer_classifier": is_valid == 0,
    }
    return masks.get(name, np.asarray(valid))


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_changes_nothing(name, backend):
    net, x, valid = network(backend, name), tokens(), [4, 7]
    padded = quickly(backend, net, x, end(name, valid, 7))
    x[0, 4:] = [3, 1, 4]
    assert_array_equal(
        quickly(backend, net, x, end(name, valid, 7))[:, :4], padded[:, :4]
    )
    shorter = quickly(backend, net, x[:1, :4])
    assert_allclose(padded[:1, :4], shorter, rtol=1e-12, atol=1e-14)
    whole = quickly(backend, net, x)
    assert_allclose(padded[1:], whole[1:], rtol=1e-12, atol=1e-14)


def test_a_token_that_is_masked_out_is_not_seen_by_later_ones():
    """Padding at the end says nothing here: nobody looks ahead anyway."""
    backend = backends.get("torch")
    net, x, others = network(backend, "gpt2"), tokens(), [0, 1, 3, 4, 5, 6]
    mask = np.ones_like(x)
    mask[:, 2] = 0
    before = quickly(backend, net, x, mask)
    x[:, 2] = x[:, 2] % 10 + 1
    assert_array_equal(quickly(backend, net, x, mask)[:, others], before[:, others])


@pytest.mark.parametrize(
    "name",
    [
        *("gpt2", "llama_3_2_1b", "mamba2_130m", "bert_tiny"),
        *("lstm_classifier", "gru_classifier"),
    ],
)
def test_nothing_but_padding_gives_numbers(name, backend):
    assert np.isfinite(
        quickly(backend, network(backend, name), tokens(), end(name, [0, 7], 7))
    ).all()


@pytest.mark.parametrize(
    "name",
    ["gpt2", "bert_tiny", "transformer_classifier", "lstm_classifier"],
)
def test_dropout_is_the_same_on_every_backend(name, backend):
    rates = {
        "gpt2": {"dropout": 0.3, "attention_dropout": 0.2},
        "bert_tiny": {"dropout": 0.3, "attention_dropout": 0.2},
    }.get(name, {"dropout": 0.3})
    outputs = []
    for on in (backend.name, "torch"):
        net = zoo.build(
            name, backend=on, dtype="float64", **NETWORKS[name] | rates
        ).train()
        with random.portable(5):
            outputs.append(quickly(net.backend, net, tokens()))
    assert_allclose(*outputs, rtol=1e-10, atol=1e-12)
    assert (
        np.abs(outputs[0] - quickly(backend, network(backend, name), tokens())).max()
        > 1e-3
    )


# Positions
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["llama_2_7b", "llama_3_1_8b", "llama_3_2_1b", "qwen2_5_0_5b"]
)
def test_rotary_frequencies_are_those_of_transformers(name):
    settings = zoo.find(name).settings
    theta, scaling = settings["rope_theta"], settings["rope_scaling"]
    config = transformers.LlamaConfig(
        head_dim=64,
        rope_parameters={"rope_theta": theta, "rope_type": "default"} | (scaling or {}),
    )
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    came = frequencies(64, theta, scaling)
    assert_allclose(came, rotary.inv_freq.numpy(), rtol=1e-6)
    assert (scaling is None) == bool(np.isclose(came[-1], theta ** (-62 / 64)))


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 6), (20, 100)])
def test_rows_of_distances_are_those_of_transformers(
    backend, buckets, longest, both_sides
):
    attention = transformers.models.t5.modeling_t5.T5Attention
    distances = np.arange(-300, 301)
    wanted = attention._relative_position_bucket(
        torch.from_numpy(distances), both_sides, buckets, longest
    )
    stack = Stack.on(backend)(3, 4, 0, not both_sides, buckets, longest, 0.0)
    came = stack._bucket_numbers(backend.array(distances))
    assert_array_equal(backend.to_numpy(came), wanted.numpy())


def test_the_table_of_sines_of_whisper_is_that_of_transformers():
    wanted = transformers.models.whisper.modeling_whisper.sinusoids(40, 12)
    assert_allclose(sines_then_cosines(40, 12), wanted.numpy(), atol=1e-5)


# State spaces
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "chunk_size"), [(1, 4), (7, 4), (8, 4), (5, 16)])
def test_a_scan_by_chunks_is_the_recurrence(backend, tokens, chunk_size):
    """One token after the other, in NumPy, from a state that is not empty."""
    generator = np.random.default_rng(8)
    groups, heads, width, states = 2, 3, 4, 5
    x = generator.standard_normal((2, tokens, groups, heads, width))
    logs = -generator.uniform(0.0, 3.0, (2, tokens, groups, heads))
    maps = generator.standard_normal((2, 2, tokens, groups, states))
    state = generator.standard_normal((2, groups, heads, width, states))
    arrays = [backend.array(each) for each in (x, logs, *maps, state)]
    came = [backend.numpy(each) for each in scan(backend.nn, *arrays, chunk_size)]
    outputs = []
    for step in range(tokens):
        to_state, from_state = maps[:, :, step, :, None, None]
        added = x[:, step, ..., None] * to_state
        state = np.exp(logs[:, step, ..., None, None]) * state + added
        outputs.append((state * from_state).sum(-1))
    assert_allclose(came[0], np.stack(outputs, 1), rtol=1e-12, atol=1e-13)
    assert_allclose(came[1], state, rtol=1e-12, atol=1e-13)


def test_steps_start_on_a_logarithmic_scale():
    bias = InverseSoftplus(0.001, 0.1).draw(np.random.default_rng(2), (3000,))
    steps = torch.nn.functional.softplus(torch.from_numpy(bias)).numpy()
    wanted = stats.loguniform(0.001, 0.1)
    assert stats.kstest(steps, wanted.cdf).pvalue > 1e-3
    assert 0.001 <= steps.min() < steps.max() <= 0.1


# Files
# -----------------------------------------------------------------------------


def test_a_file_without_the_tied_head_is_complete():
    backend = backends.get("torch")
    source = zoo.build("gpt2", backend="torch", seed=1, **GPT)
    state = source.neutral_state()
    del state["lm_head.weight"]
    net = zoo.build("gpt2", backend=backend, **GPT)
    assert net.load_neutral_state(state).complete
    assert_array_equal(
        net.neutral_state()["lm_head.weight"], state["transformer.wte.weight"]
    )


@pytest.mark.parametrize(
    ("label", "body", "table", "head"),
    [
        ("gpt2", "transformer", "wte.weight", "lm_head"),
        ("llama_3_2_1b", "model", "embed_tokens.weight", "lm_head"),
        ("mamba2_130m", "backbone", "embeddings.weight", "lm_head"),
        ("whisper_tiny", "model", "decoder.embed_tokens.weight", "proj_out"),
    ],
)
def test_files_of_the_body_alone_fit_through_their_layout(label, body, table, head):
    net, other = (CASES[label].build("torch", "float32", seed) for seed in (0, 1))
    layout, *_ = net.keymaps
    state = getattr(other, body).state_dict()
    body = {name: value.numpy() for name, value in state.items()}
    theirs = layout.to_layout(other.neutral_state())
    assert list(theirs) == list(body)
    assert net.load_neutral_state(
        layout.from_layout(body, list(net.neutral_slots()))
    ).complete
    assert_array_equal(net.neutral_state()[f"{head}.weight"], body[table])


@pytest.mark.parametrize("label", ["whisper_tiny", "mamba2_130m", "mamba2_130m masked"])
def test_the_file_of_hugging_faces_network_gives_its_outputs(label, tmp_path):
    case = CASES[label]
    torch.manual_seed(0)
    module = case.reference().double().eval()
    module.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    net = on_torch(case.name, weights=file, **case.settings)
    inputs = [torch.from_numpy(x) for x in case.inputs()]
    close(net(*inputs), case.call(module, *inputs), 1e-10)


def test_files_of_state_spaces_fit():
    """Their names, which transformers reads, too; the tied head is in them."""
    net, other = (CASES["mamba2_130m"].build("torch", "float32", n) for n in (0, 1))
    state = other.neutral_state()
    published = dict(state)
    table = published.pop("backbone.embeddings.weight")
    published["backbone.embedding.weight"] = table
    report = zoo.load(net, published)
    assert report.missing == report.unexpected == ()
    assert_equal(net.neutral_state(), state)


@pytest.mark.parametrize("num_classes", [0, 3])
def test_berts_old_names_are_those_of_tensorflow(num_classes):
    net = zoo.build("bert_tiny", backend="torch", **BERT | {"num_classes": num_classes})
    names = list(net.neutral_slots())
    old = next(layout for layout in net.keymaps if layout.name == "old").table(names)
    prefix = "bert." if num_classes else ""
    assert (
        old[f"{prefix}embeddings.LayerNorm.weight"]
        == f"{prefix}embeddings.LayerNorm.gamma"
    )
    ends = f"{prefix}encoder.layer.1.output"
    assert old[f"{ends}.LayerNorm.bias"] == f"{ends}.LayerNorm.beta"
    assert old[f"{ends}.dense.bias"] == f"{ends}.dense.bias"
    assert list(old) == names
    assert len(set(old.values())) == len(names)


def test_a_file_of_berts_pretraining_fits():
    """As ``bert-base-uncased`` was published: a prefix, old names, heads, a table of positions."""
    net, other = (
        zoo.build("bert_tiny", backend="torch", seed=seed, **BERT) for seed in (0, 1)
    )
    published = {
        f"bert.{name}".replace("Norm.weight", "Norm.gamma").replace(
            "Norm.bias", "Norm.beta"
        ): value
        for name, value in other.neutral_state().items()
    }
    published |= {
        "cls.predictions.bias": np.zeros(13),
        "bert.embeddings.position_ids": np.arange(9)[None],
    }
    layout = next(layout for layout in net.keymaps if layout.name == "old pretraining")
    state = net.adapt_state(layout.from_layout(published, list(net.neutral_slots())))
    assert net.load_neutral_state(state).complete
    assert_array_equal(
        net.neutral_state()["pooler.dense.weight"],
        published["bert.pooler.dense.weight"],
    )


def test_the_table_of_sines_is_computed_for_another_length():
    long, short = (
        zoo.build(
            "transformer_classifier", backend="torch", **ENCODER | {"max_tokens": n}
        )
        for n in (9, 5)
    )
    table = long.neutral_state()["positions.pe"]
    came = short.adapt_weight("positions.pe", table, (5, 12))
    assert_allclose(came, table[:5], atol=1e-7)


# Start values
# -----------------------------------------------------------------------------


def test_the_padding_tokens_row_starts_at_zero_and_stays(backend):
    net = zoo.build(
        "bert_tiny", backend=backend, dtype="float64", **BERT | {"num_classes": 3}
    )
    x = tokens()
    x[:, 2] = 0

    def loss(net, inputs):
        return net.nn.mean(net(inputs) ** 2)

    gradient = backend.gradients(loss, net, x).parameters[
        "bert.embeddings.word_embeddings.weight"
    ]
    assert not gradient[0].any()
    assert gradient[x[0, 0]].any()
    table = net.neutral_state()["bert.embeddings.word_embeddings.weight"]
    assert not table[0].any()
    assert table[1:].all()


# Shapes and counts
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layers", "width", "tokens", "vocabulary"),
    [
        ("gpt2", 12, 768, 1024, 50257),
        ("gpt2_xl", 48, 1600, 1024, 50257),
        ("gpt_mini", 6, 192, 128, 65),
    ],
)
def test_multiply_adds_of_gpt2_follow_its_formula(
    name, layers, width, tokens, vocabulary
):
    block = tokens * 12 * width**2 + 2 * tokens**2 * width
    assert (
        zoo.outline(name).multiply_adds == layers * block + tokens * width * vocabulary
    )


@pytest.mark.parametrize(
    ("name", "gates"), [("lstm_classifier", 4), ("gru_classifier", 3)]
)
def test_multiply_adds_of_recurrent_layers_follow_their_formula(name, gates):
    assert zoo.outline(name).multiply_adds == 256 * gates * 256 * (128 + 256) + 256 * 2


@pytest.mark.parametrize("num_classes", [0, 5])
def test_bert_gives_states_and_pooled_features_or_classes(num_classes):
    output = zoo.outline("bert_tiny", num_classes=num_classes).output
    assert output == (
        (1, 5)
        if num_classes
        else {"last_hidden_state": (1, 512, 128), "pooler_output": (1, 128)}
    )


# Bad input
# -----------------------------------------------------------------------------

LIMITS = {
    "gpt2": "n_positions=8",
    "llama_3_2_1b": "max_position_embeddings=8",
    "bert_tiny": "max_position_embeddings=9",
    "transformer_classifier": "max_tokens=8",
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_sequence_that_is_too_long_is_refused(name):
    backend = backends.get("torch")
    with pytest.raises(
        ShapeError,
        match=rf"a sequence of 10 tokens is too long: there are positions for {LIMITS[name]}",
    ):
        run(backend, network(backend, name), tokens(count=10))


def test_a_token_outside_the_vocabulary_is_refused(backend, subtests):
    x = tokens()
    for name, bad in product(NETWORKS, (-1, 50)):
        x[1, 2] = bad
        message = rf"{bad} is out of range, wanted whole numbers from 0 to 1[02]"
        with (
            subtests.test(name, bad=bad),
            pytest.raises(IndexRangeError, match=message),
        ):
            run(backend, network(backend, name), x)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_no_batch_of_tokens_is_refused(name):
    net = network("torch", name)
    with pytest.raises(
        ShapeError, match=r"got tokens of shape \(7,\), wanted \(batch, tokens\)"
    ):
        net(torch.arange(7))
    with pytest.raises(SettingError, match="wanted whole numbers"):
        net(torch.ones(2, 7))


@pytest.mark.parametrize(
    "name",
    ["gpt2", "llama_3_2_1b", "mamba2_130m", "bert_tiny", "transformer_classifier"],
)
def test_a_mask_of_another_shape_is_refused(name):
    with pytest.raises(
        ShapeError, match=r"_mask of shape \(2, 5\), wanted \(batch, tokens\): \(2, 7\)"
    ):
        network("torch", name)(torch.from_numpy(tokens()), torch.ones(2, 5))


def test_lengths_that_do_not_fit_are_refused(backend):
    net = network(backend, "lstm_classifier")
    with pytest.raises(
        IndexRangeError,
        match="lengths: 8 is out of range, wanted whole numbers from 0 to 7",
    ):
        run(backend, net, tokens(), np.array([8, 2]))
    with pytest.raises(
        ShapeError,
        match=r"LSTM at 'rnn': got lengths of shape \(3,\) for 2 sequences, wanted \(2,\)",
    ):
        run(backend, net, tokens(), np.array([1, 2, 3]))


def test_vectors_of_another_shape_are_refused():
    net = network("torch", "gru_classifier", vocab_size=0)
    with pytest.raises(
        ShapeError,
        match=r"got an input of shape \(2, 4\), wanted \(batch, time, in_features\)",
    ):
        net(torch.zeros(2, 4, dtype=torch.float64))
    with pytest.raises(
        ShapeError,
        match=r"GRU at 'rnn': got an input of shape \(2, 4, 3\), wanted \(\.\.\., 4\)",
    ):
        net(torch.zeros(2, 4, 3, dtype=torch.float64))


@pytest.mark.parametrize("name", ["gpt2", "bert_tiny"])
def test_each_place_of_dropout_acts_as_often_as_was_published(name):
    for setting in ("dropout", "attention_dropout"):
        assert zoo.find(name).settings[setting] == 0.1
        net = zoo.build(
            name, backend="torch", dtype="float64", **NETWORKS[name] | {setting: 0.3}
        )
        calm, wild = (
            quickly(net.backend, net.train(mode), tokens()) for mode in (False, True)
        )
        assert np.abs(calm - wild).max() > 1e-6


@pytest.mark.parametrize(
    ("name", "settings", "old"),
    [
        (
            "gpt2",
            GPT,
            ["transformer.h.1.attn.bias", "transformer.h.0.attn.masked_bias"],
        ),
        ("llama_3_2_1b", LLAMA, ["model.layers.0.self_attn.rotary_emb.inv_freq"]),
        (
            "unetr",
            {"img_size": 16, "dims": 2, "hidden_size": 12},
            ["vit.blocks.0.cross_attn.q"],
        ),
    ],
)
def test_what_old_files_have_besides_is_left_out(name, settings, old):
    net = zoo.build(name, backend="torch", **settings)
    state = net.neutral_state()
    assert list(net.adapt_state(state | dict.fromkeys(old, np.ones(3)))) == list(state)


def test_gemmas_outputs_and_gradients_are_hugging_faces_on_every_backend(backend):
    """With windows of three tokens, a mask, and layers of both kinds."""
    wanted, _ = theirs("gemma_3_270m")
    assert_same(computed("gemma_3_270m", backend.name), wanted, 1e-10)
