"""The outputs of each architecture of the registry under its settings, beside the library's own."""

import json
import warnings
from functools import partial

import numpy as np
import pytest
import torch

from deliralike import zoo
from tests.published import tables
from tests.published.__main__ import FOLDER
from tests.references import Later

MOST_PARAMETERS = 30e6


def cases():
    """Timm's smallest network for each class of ours and the names of the settings of its weights.

    Each with the name of ours, the settings and the side of the images. Networks without settings
    of their own are proved at a smaller size in `tests.zoo`.
    """
    smallest = {}
    for record in json.loads((FOLDER / "timm.json").read_text(encoding="utf-8"))[
        "weights"
    ]:
        theirs = record["name"].partition("/")[2].partition(".")[0]
        architecture, settings = (
            zoo.find(record["architecture"]),
            record.get("settings"),
        )
        if settings and record.get("classes") == 1000:
            side = record["preprocessing"]["crop"]
            row = (architecture.parameters, theirs, architecture.name, settings, side)
            kind = (architecture.network, *sorted(settings))
            smallest[kind] = min(smallest.get(kind, row), row, key=lambda row: row[:2])
    return {row[1]: row[2:] for row in smallest.values() if row[0] < MOST_PARAMETERS}


def scrambled(module):
    """The module with statistics, scales and head away from their start."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5, generator=generator)
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1, generator=generator)
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
            if "head" in name:
                parameter.normal_(0, 0.05, generator=generator)
    return module.eval()


def compare(module, name, settings, side):
    """Compares outputs in double precision, since the deepest networks amplify rounding."""
    weights = dict(module.double().state_dict())
    network = zoo.build(
        name, backend="torch", weights=weights, dtype="float64", **settings
    )
    network.eval()
    dims = settings.get("dims", 2)
    if "image_size" not in zoo.find(name).settings and not name.startswith(
        ("swin", "inception")
    ):
        side = 97 if dims == 2 else 35  # as good as any other, and cheaper
    shape = (1, settings.get("in_channels", 3), *(side,) * dims)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).double()
    with torch.no_grad():
        wanted = module(x).numpy()
        found = network(x).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
    return network


@pytest.mark.parametrize("theirs", cases())
def test_timms_network_and_ours_give_the_same_numbers_and_weights_go_back(theirs):
    name, settings, side = cases()[theirs]
    torch.manual_seed(0)
    module = scrambled(tables._timm().create_model(theirs, num_classes=1000))
    network = compare(module, name, settings, side)
    (layout,) = [keymap for keymap in network.keymaps if keymap.name == "timm"]
    back, wanted = layout.to_layout(network.neutral_state()), module.state_dict()
    np.testing.assert_equal(back, wanted)


def test_torchvisions_network_that_changes_its_input_and_ours_give_the_same_numbers():
    name = "googlenet"
    (entry,) = zoo.weights(name)
    models = tables._torchvision().models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = scrambled(partial(models.get_model, name)(transform_input=True))
    compare(module, name, dict(entry.settings), entry.preprocessing.crop)


@pytest.mark.parametrize("name", ["resnet10", "efficientnet_b0"])
def test_monais_network_and_ours_give_the_same_numbers(name):
    entry = next(one for one in zoo.weights(name) if one.name.startswith("monai/"))
    if name.startswith("resnet"):
        module = Later("monai.networks.nets.resnet.ResNetFeatures")(
            name, pretrained=False
        )
        with_pooled = Later("monai.networks.nets.resnet.ResNet").forward
        module.forward = partial(with_pooled, module)
    else:
        module = tables.efficientnet_of_monai(name.replace("_", "-"))
    compare(scrambled(module), name, dict(entry.settings), side=None)
