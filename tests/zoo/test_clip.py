"""What only CLIP has: masks and ends of texts, its loss, OpenAI's layout, files of many kinds."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from deliralike import zoo
from deliralike.errors import ShapeError
from deliralike.zoo.published.descriptions import of_transformers
from tests.references import Later
from tests.zoo.case import close, scramble
from tests.zoo.cases.clip import MASKED, SMALL, outputs, reference

image_text_contrastive_loss = Later(
    "transformers.models.clip.modeling_clip.image_text_contrastive_loss"
)

TOKENS = np.array([[3, 5, 1, 5, 0, 2, 2], [1, 2, 3, 4, 6, 7, 5], [1, 9, 9, 4, 5, 9, 9]])
MASK = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 1, 1]])


def pictures(count, channels=3, side=10):
    return np.random.default_rng(0).standard_normal((count, channels, side, side))


def in_double(reference):
    """A reference in double precision, away from its start values."""
    torch.manual_seed(0)
    network = reference.double().eval()
    scramble(network)
    return network


def ours(settings, state, backend="torch"):
    network = zoo.build(
        "clip_vit_b_32", backend=backend, dtype="float64", **settings
    ).eval()
    zoo.load(network, {name: value.numpy() for name, value in state.items()})
    return network


def test_masks_ends_and_loss_are_hugging_faces_on_every_backend(backend):
    theirs = in_double(reference(**MASKED))
    network = ours(MASKED, theirs.state_dict(), backend.name)
    arrays = (TOKENS, pictures(3, 2), MASK)
    with torch.no_grad():
        wanted = outputs(theirs, *map(torch.from_numpy, arrays))
        loss = image_text_contrastive_loss(wanted["logits_per_text"])
    with backend.evaluating():
        came = network(*(backend.prepare(array, network) for array in arrays))
        mine = network.contrastive_loss(came["logits_per_image"])
    for name, value in wanted.items():
        close(backend.numpy(came[name]), value.numpy(), 1e-10, name=name)
    assert float(backend.numpy(mine)) == pytest.approx(loss.item(), rel=1e-12)


def test_features_of_one_tower_alone_are_hugging_faces():
    theirs = in_double(reference(**SMALL))
    network = ours(SMALL, theirs.state_dict())
    images, tokens = torch.from_numpy(pictures(2)), torch.from_numpy(TOKENS)
    with torch.no_grad():
        image = theirs.get_image_features(images).pooler_output
        text = theirs.get_text_features(tokens).pooler_output
    torch.testing.assert_close(network.get_image_features(images), image)
    torch.testing.assert_close(network.get_text_features(tokens), text)


def test_there_may_be_more_texts_than_pictures_but_not_in_the_loss():
    network = zoo.build("clip_vit_b_32", backend="torch", **SMALL)
    logits = network(torch.from_numpy(TOKENS), torch.randn(2, 3, 10, 10))[
        "logits_per_text"
    ]
    assert tuple(logits.shape) == (3, 2)
    with pytest.raises(
        ShapeError, match=r"logits of shape \(3, 2\), wanted as many texts as pic"
    ):
        network.contrastive_loss(logits)


# Files
# -----------------------------------------------------------------------------


class Block(nn.Module):
    """A block of OpenAI's code."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_1 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, inner))
        self.mlp.add_module("c_proj", nn.Linear(inner, width))
        self.ln_2 = nn.LayerNorm(width)

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        y = self.mlp.c_fc(self.ln_2(x))
        return x + self.mlp.c_proj(y * torch.sigmoid(1.702 * y))


class Transformer(nn.Module):
    """Its blocks, over ``(tokens, batch, width)``."""

    def __init__(self, layers, *block):
        super().__init__()
        self.resblocks = nn.ModuleList([Block(*block) for _ in range(layers)])

    def forward(self, x, mask=None):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class Visual(nn.Module):
    """Its transformer over pictures, of the sizes of ``SMALL``."""

    def __init__(self):
        super().__init__()
        self.class_embedding = nn.Parameter(torch.randn(8))
        self.positional_embedding = nn.Parameter(torch.randn(5, 8))
        self.proj = nn.Parameter(torch.randn(8, 7))
        self.conv1 = nn.Conv2d(3, 8, 5, 5, bias=False)
        self.ln_pre, self.ln_post = nn.LayerNorm(8), nn.LayerNorm(8)
        self.transformer = Transformer(1, 8, 4, 7)

    def forward(self, x):
        x = self.conv1(x).flatten(2).permute(2, 0, 1)
        first = self.class_embedding.expand(1, x.shape[1], -1)
        x = torch.cat([first, x]) + self.positional_embedding[:, None]
        return self.ln_post(self.transformer(self.ln_pre(x))[0]) @ self.proj


class OpenAI(nn.Module):
    """The whole network."""

    def __init__(self):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.randn(8, 6))
        self.text_projection = nn.Parameter(torch.randn(6, 7))
        self.logit_scale = nn.Parameter(torch.tensor(1.5))
        self.visual = Visual()
        self.transformer = Transformer(2, 6, 2, 9)
        self.token_embedding = nn.Embedding(11, 6)
        self.ln_final = nn.LayerNorm(6)

    def forward(self, tokens, images):
        count = tokens.shape[1]
        x = self.token_embedding(tokens) + self.positional_embedding[:count]
        mask = torch.full((count, count), -torch.inf, dtype=x.dtype).triu(1)
        x = self.ln_final(self.transformer(x.transpose(0, 1), mask)).transpose(0, 1)
        text = x[torch.arange(len(x)), tokens.argmax(1)] @ self.text_projection
        image = self.visual(images)
        text, image = (
            text / text.norm(dim=1)[:, None],
            image / image.norm(dim=1)[:, None],
        )
        return self.logit_scale.exp() * text @ image.T


def test_a_file_of_openai_gives_its_networks_logits_and_comes_back():
    theirs = in_double(OpenAI())
    state = theirs.state_dict()
    network = ours(SMALL, state | {"vocab_size": torch.tensor(11)})
    tokens, images = torch.from_numpy(TOKENS), torch.from_numpy(pictures(3))
    torch.testing.assert_close(
        network(tokens, images)["logits_per_text"], theirs(tokens, images)
    )
    (keymap,) = network.keymaps
    back = keymap.to_layout(network.neutral_state())
    assert set(back) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(back[name], value.numpy(), err_msg=name)


def test_another_image_size_resamples_the_positions_as_hugging_face_does():
    theirs = in_double(reference(**SMALL))
    network = ours(
        SMALL | {"image_size": 15, "max_position_embeddings": 7}, theirs.state_dict()
    )
    images = torch.from_numpy(pictures(2, side=15))
    with torch.no_grad():
        wanted = theirs.get_image_features(
            images, interpolate_pos_encoding=True
        ).pooler_output
    torch.testing.assert_close(
        network.get_image_features(images), wanted, rtol=1e-9, atol=1e-9
    )


def test_tables_of_numbers_in_older_files_are_left_out():
    state = reference(**SMALL).state_dict()
    network = zoo.build("clip_vit_b_32", backend="torch", **SMALL)
    ids = {
        f"{tower}_model.embeddings.position_ids": torch.arange(5)
        for tower in ("text", "vision")
    }
    assert zoo.load(network, state | ids).complete


#: A preparation as the first files of CLIP state it, in which one number is the shorter side.
OLD = """{"crop_size": 224, "do_center_crop": true, "do_resize": true, "size": 224, "resample": 3,
"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"""


def test_one_number_is_the_shorter_side_where_the_centre_is_cut_out():
    came = of_transformers(json.loads(OLD))
    assert (came.resize, came.crop, came.interpolation) == (224, 224, "bicubic")
