"""What only CLIP has: masks and ends of texts, its loss, files of many kinds."""

import json

import numpy as np
import pytest
import torch

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
        close(backend.numpy(came[name]), value, 1e-10, name=name)
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


def test_another_image_size_resamples_the_positions_as_hugging_face_does():
    theirs = in_double(reference(**SMALL))
    network = ours(SMALL | {"image_size": 15}, theirs.state_dict())
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
