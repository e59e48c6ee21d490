"""The preparation of pictures: the libraries' own transforms of each entry, on real pictures."""

import numpy as np
import pytest
from PIL import Image
from skimage import data

from deliralike import zoo
from tests.published.tables import _timm, _torchvision

# wide, tall and odd, smaller than some crops, grey
PICTURES = {
    "wide": lambda: data.chelsea()[:151, :223],
    "tall": lambda: data.astronaut()[:260, 100:287],
    "grey": lambda: data.camera()[100:300, :301],
}


def distinct(source):
    """One entry for each preparation that a source has."""
    found = {}
    for entry in zoo.weights():
        if entry.name.startswith(source) and entry.preprocessing is not None:
            found.setdefault(entry.preprocessing, entry)
    return list(found.values())


def torchvisions(entry):
    models = _torchvision().models
    return models.get_model_weights(entry.architecture)[
        entry.name.partition("/")[2]
    ].transforms()


def timms(entry):
    models = _timm().models
    config = models.get_pretrained_cfg(entry.name.partition("/")[2]).to_dict()
    return _timm().data.create_transform(
        **_timm().data.resolve_data_config(pretrained_cfg=config), is_training=False
    )


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize(
    ("source", "count", "theirs"),
    [
        ("torchvision", 24, torchvisions),
        ("timm", 34, timms),
    ],
)
def test_prepared_pictures_are_those_of(source, count, theirs, name, subtests):
    picture = PICTURES[name]()
    image = Image.fromarray(picture).convert("RGB")
    entries = distinct(source)
    assert len(entries) >= count
    for entry in entries:
        with subtests.test(entry.name, architecture=entry.architecture):
            wanted = theirs(entry)(image).numpy()
            found = entry.preprocessing(picture)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_a_file_an_image_and_an_array_are_prepared_alike(tmp_path):
    prepare = zoo.Preprocessing(40, 32)
    picture = PICTURES["wide"]()
    Image.fromarray(picture).save(tmp_path / "x.png")
    wanted = prepare(picture)
    np.testing.assert_array_equal(prepare(tmp_path / "x.png"), wanted)
    np.testing.assert_array_equal(prepare(Image.fromarray(picture)), wanted)
    np.testing.assert_array_equal(prepare([picture, picture])[1], wanted)


def test_a_description_is_one_line():
    assert str(zoo.Preprocessing(256, 224)) == (
        "shorter side to 256 (bilinear), crop 224, mean and std of ImageNet"
    )
    other = zoo.Preprocessing(
        (20, 30), None, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.25, 1 / 3)
    )
    assert str(other) == (
        "resize to 20 x 30 (bicubic), mean (0.5, 0.5, 0.5), std (0.25, 0.25, 0.3333)"
    )


def test_a_picture_smaller_than_the_crop_is_padded_as_torchvision_pads():
    picture = PICTURES["wide"]()[:30, :36]
    crop = _torchvision().transforms.functional.center_crop
    wanted = (
        np.asarray(crop(Image.fromarray(picture), 35), np.float32).transpose(2, 0, 1)
        / 255
    )
    prepare = zoo.Preprocessing(crop=35, mean=(0, 0, 0), std=(1, 1, 1))
    np.testing.assert_allclose(prepare(picture), wanted, rtol=0, atol=1e-6)
