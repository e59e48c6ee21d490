"""Networks that are spread over processes make the updates of one process, and each holds its
part."""

import math

import pytest
import torch

from deliralike import FullyShardedDataParallel, zoo
from deliralike.backends.torch.distributed.sharded import blocks_from
from deliralike.errors import CapabilityError
from deliralike.parallel import SingleProcess
from tests.processes import sharding, training
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together

pytestmark = together

FITTED = "tests.processes.sharding:fitted"
ALL = {"smallest": 1}  # every layer by itself


@pytest.mark.parametrize(
    ("shares", "keywords"),
    [
        ([4, 3], ALL),
        ([3, 0, 2, 2], ALL | {"reshard_after_forward": False}),
        ([5, 2], {}),
    ],
)
def test_updates_are_those_of_one_process(shares, keywords):
    """Class weights, ignored labels, batch norm, dropout, clipping, decay by groups; shares that
    differ, one empty."""
    wanted = sharding.alone(7)
    came = call(
        "torch", len(shares), "tests.processes.sharding:train", shares, keywords
    )
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


def test_keywords_of_pytorchs_go_through():
    """Each process computes in bfloat16 (8 bits: some hundredths off), or holds columns in the
    place of rows."""
    (wanted, _), *_ = sharding.by_keywords(SingleProcess()).values()
    rows, columns = [[5, 14], [5], [2, 10], [2]], [[10, 7], [5], [4, 5], [2]]
    came = call("torch", 2, "tests.processes.sharding:by_keywords")[0]
    for name, (losses, parts) in came.items():
        off = max(abs(loss - other) for loss, other in zip(losses, wanted, strict=True))
        assert 1e-4 < off < 2e-2 if name == "mp_policy" else off < 1e-6, name
        shapes = columns if name == "shard_placement_fn" else rows
        assert parts == [["torch.float32", shape] for shape in shapes], name


def test_each_process_holds_its_part():
    """Rows are shared out in equal parts rounded up; nothing else is alive after updates and an
    evaluation."""
    shapes = {
        name: value.shape for name, value in sharding.wide().neutral_state().items()
    }
    rows = {name: -(-shape[0] // 3) for name, shape in shapes.items()}
    padded = 8 * sum(
        rows[name] * math.prod(shape[1:]) for name, shape in shapes.items()
    )
    limit = 3 * padded + 2000  # counters and scalars
    came = call("torch", 3, "tests.processes.sharding:held", limit)
    for rank, each in enumerate(came):
        wanted = {
            name: [max(min(rows[name], shape[0] - rank * rows[name]), 0), *shape[1:]]
            for name, shape in shapes.items()
        }
        assert each["parts"] == wanted
        assert each["parameters"] == 8 * sum(
            math.prod(shape) for shape in wanted.values()
        )
        assert each["states"] == 2 * each["parameters"]  # Adam's two moments
        assert each["parameters"] + each["states"] <= each["alive"] <= limit
    whole = 8 * sum(math.prod(shape) for shape in shapes.values())
    assert sum(each["parameters"] for each in came) == whole
    assert max(each["alive"] for each in came) < 3 * whole / 2.5


def test_a_parameter_that_one_process_uses_counts_as_zero_in_the_others():
    """And one that nobody uses is left alone, by weight decay too."""
    came = call("torch", 2, "tests.processes.sharding:unused")
    assert came == call("torch", 2, "tests.processes.steps:unused", "torch")


def test_a_process_without_samples_needs_no_statistics_of_its_one_sample():
    wanted = sharding.forgetful(SingleProcess(), [4])
    for came in call("torch", 2, "tests.processes.sharding:forgetful", [4, 0]):
        assert largest_difference(wanted, came) < 1e-12


def test_windows_of_two_optimizers_are_those_of_one_process():
    """Each knows the parameters that its own batches used, whichever is flushed first."""
    wanted = sharding.windows(SingleProcess())
    for came in call("torch", 2, "tests.processes.sharding:windows"):
        assert largest_difference(wanted, came) < 1e-12


def test_what_cannot_work_is_an_error():
    found = call("torch", 2, "tests.processes.sharding:refused")
    for each in found:
        assert "the loss takes gradients within itself" in each["penalty"]
        assert (
            "a parameter of a fully sharded network is whole only while its block is called"
            in each["inside"]
        )
        assert (
            "the gradients of a fully sharded network are taken by an optimizer"
            in each["graph"]
        )
        assert (
            "gradients of a fully sharded network are taken by an optimizer"
            in each["gradients"]
        )


def test_other_blocks_in_each_process_are_an_error():
    for (said,) in call(
        "torch",
        2,
        "tests.processes.refusals:said",
        ["tests.processes.sharding:mixed_up"],
    ):
        assert "have called other blocks of a fully sharded network" in said


def test_a_run_is_that_of_one_process_and_so_are_its_checkpoints(tmp_path):
    """Batches of 7 and a last one of a single sample, an average of weights, evaluation; 3
    processes, then 1 and 2."""
    of_three, of_one = tmp_path / "three", tmp_path / "one"
    wanted = sharding.fitted(SingleProcess(), str(of_one))
    three = call("torch", 3, FITTED, str(of_three))
    alone = sharding.fitted(
        SingleProcess(), None, training.EPOCHS, str(of_three / "step-00000004")
    )
    two = call("torch", 2, FITTED, None, training.EPOCHS, str(of_one / "step-00000004"))
    for each in three:
        assert training.largest_difference(wanted, each) < 1e-11
    for each in (alone, *two):
        last, each = (
            {**of, "losses": of["losses"][-5:], "metrics": of["metrics"][-2:]}
            for of in (wanted, each)
        )
        assert training.largest_difference(last, each) < 1e-11


# Blocks
# -----------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """A list, an attention layer of PyTorch's, and two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in "ab"
        )
        self.attention = torch.nn.MultiheadAttention(8, 2)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight


def test_blocks_that_are_gathered_by_themselves():
    """By size, layers of PyTorch's own as a whole, none that shares a parameter with others, no
    list."""
    network = Tied()
    paths = {id(block): path for path, block in network.named_modules()}

    def chosen(smallest):
        return [paths[id(block)] for block in blocks_from(smallest, network)]

    assert chosen(1) == ["blocks.0.0", "blocks.1.0", "attention"]
    assert chosen(73) == ["attention"]  # 8 * 8 + 8 parameters in each linear layer
    assert chosen(4 * 72 + 1) == []  # 3 * 72 and 72 in the attention


def test_one_process_has_the_network_as_it_is():
    network = sharding.wide()
    assert FullyShardedDataParallel(network, SingleProcess()) is network


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("torch", "alone: deliralike.join\\('torch'\\)"),
        ("chainer", "has no fully sharded networks"),
        ("jax", "has no fully sharded networks"),
    ],
)
def test_what_has_none_says_so(backend, words):
    network = zoo.build("mlp", backend=backend, in_features=3, out_features=2)
    with pytest.raises(CapabilityError, match=words):
        network.backend.shard(network, SingleProcess())
