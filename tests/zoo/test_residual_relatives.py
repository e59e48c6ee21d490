"""What is particular to pre-activation and video ResNets, and to networks over signals: start
values, settings, what an output depends on."""

import numpy as np
import pytest
import torch

from deliralike import zoo
from tests.zoo.case import arrays_of


def test_kernels_that_are_normalised_start_with_the_lengths_of_plain_ones():
    state = zoo.build("tcn", backend="torch").neutral_state()
    kernels = state["tcn.network.1.conv1.weight_v"]
    lengths = np.linalg.norm(kernels.reshape(len(kernels), -1), axis=1)
    wanted = state["tcn.network.1.conv1.weight_g"].ravel()
    np.testing.assert_allclose(lengths, wanted, rtol=0.2)


def test_videos_within_frames_keep_their_number_and_others_halve_it():
    within, mixed = (
        zoo.stages("r3d_18", (3, 16, 32, 32), kinds=kinds)["layer4"].shape
        for kinds in (("2d",) * 4, ("3d", "2+1d", "3d", "2d"))
    )
    assert within == (512, 16, 2, 2)
    assert mixed == (512, 4, 2, 2)


def test_a_tcn_is_as_large_as_the_paper_says():
    """Table 1: 70 thousand for the pixels of MNIST."""
    assert zoo.outline("tcn").parameters == pytest.approx(70_000, rel=0.05)


def block(weight_norm):
    """A block of the authors' TCN, whose convolutions are there twice."""
    layers = torch.nn.Module()
    layers.conv1 = weight_norm(torch.nn.Conv1d(2, 4, 3))
    layers.conv2 = weight_norm(torch.nn.Conv1d(4, 4, 3))
    between = [torch.nn.Identity()] * 3
    layers.net = torch.nn.Sequential(layers.conv1, *between, layers.conv2)
    layers.downsample = torch.nn.Conv1d(2, 4, 1)
    return layers


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "weight_norm",
    [torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm],
    ids=["by hooks", "parametrized"],
)
def test_files_of_the_authors_tcn_load(weight_norm):
    theirs = torch.nn.Module()
    theirs.tcn = torch.nn.Module()
    theirs.tcn.network = torch.nn.Sequential(block(weight_norm))
    theirs.linear = torch.nn.Linear(4, 3)
    state = arrays_of(theirs)
    settings = {"num_classes": 3, "in_channels": 2, "widths": (4,), "kernel_size": 3}
    network = zoo.build("tcn", backend="torch", weights=state, **settings)
    conv = network.tcn.network[0].conv2
    kernels = (
        conv.weight_g * conv.weight_v / conv.weight_v.norm(dim=(1, 2), keepdim=True)
    )
    torch.testing.assert_close(kernels, theirs.tcn.network[0].conv2.weight)


SEEN = {
    "tcn": (
        {"widths": (6, 6), "kernel_size": 3, "dropout": 0.0, "every_step": True},
        13,
    ),
    "wavenet": (
        {
            "levels": 6,
            "layers": 2,
            "stacks": 2,
            "width": 4,
            "gate_width": 4,
            "skip_width": 8,
            "kernel_size": 2,
        },
        8,
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_an_output_depends_on_its_receptive_field_alone(name, backend):
    settings, length = SEEN[name]
    network = zoo.build(name, backend=backend, dtype="float64", **settings).eval()
    assert network.receptive_field == length
    (sample,) = zoo.find(name).sample(dtype="float64", **settings)
    sample = sample[..., : length + 3]
    changed = []
    for step in range(length + 3):
        other = sample.copy()
        other[..., step] = (other[..., step] + 1) % 6
        before, after = (
            backend.numpy(network(backend.prepare(x, network))) for x in (sample, other)
        )
        changed.append(np.flatnonzero(np.abs(before - after).max((0, 1)) > 1e-15))
    for step, steps in enumerate(changed):
        assert steps.min() == step
        assert steps.max() <= step + length - 1
    assert changed[0].max() == length - 1
