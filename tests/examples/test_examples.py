"""Users' scripts give what their framework gives by itself, on one device and in one process, in
float64."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset

from deliralike import join
from deliralike.backends.chainer.arrays import chainer
from deliralike.parallel import SingleProcess
from tests.examples import (
    delira_chainer,
    delira_pytorch,
    mmengine_gan,
    mmengine_quickstart,
    pytorch_data_parallel,
    pytorch_ddp,
)

ROOT = Path(__file__).parents[2]


def same(found, wanted):
    """Of two modules, or states."""
    found, wanted = (
        each.state_dict() if hasattr(each, "state_dict") else each
        for each in (found, wanted)
    )
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(
            np.asarray(found[name]), np.asarray(value), rtol=0, atol=1e-12, err_msg=name
        )


def test_the_page_lists_every_script():
    page = (ROOT / "docs/howto/moving.md").read_text(encoding="utf-8")
    scripts = [
        path
        for path in Path(__file__).parent.glob("*.py")
        if not path.name.startswith(("test_", "__"))
    ]
    assert (
        scripts
        and [path.name for path in scripts if f"`{path.name}`" not in page] == []
    )


# PyTorch
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shares"), [(2, [15] * 6 + [5] * 2), (3, [10] * 9 + [4, 3, 3])]
)
def test_the_tutorial_of_data_parallelism(count, shares, capsys):
    wanted = pytorch_data_parallel.main()  # without devices it is PyTorch alone
    capsys.readouterr()
    same(pytorch_data_parallel.main(["cpu"] * count), wanted)
    said = capsys.readouterr().out
    assert sorted(map(int, re.findall(r"in the model: \((\d+), 64\)", said))) == sorted(
        shares
    )
    assert re.findall(r"outside: \((\d+), 64\) to \((\d+), 10\)", said) == [
        ("30", "30")
    ] * 3 + [("10", "10")]


def test_processes_that_pytorch_has_connected_already_are_taken(monkeypatch):
    """A script that calls init_process_group itself; without that, and without a launcher, a
    process is alone."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert type(join()) is SingleProcess
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    processes = join()
    assert (processes.engine, processes.count) == ("torch.distributed", 1)
    processes.close()
    assert type(join()) is SingleProcess


def test_the_tutorial_of_several_processes(tmp_path):
    """Groups, samplers, files and barriers are PyTorch's; batch normalisation is that of all
    processes."""
    script = [sys.executable, "-m", "tests.examples.pytorch_ddp", str(tmp_path)]
    ended = subprocess.run(
        script, cwd=ROOT, timeout=900, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr

    torch.manual_seed(0)
    model, dataset = pytorch_ddp.ToyModel().double(), pytorch_ddp.digits()
    alone = DataLoader(
        Subset(dataset, range(96)), batch_size=32
    )  # the samplers deal out samples in turn
    pytorch_ddp.train(
        model, alone, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    )
    for rank in range(2):
        same(torch.load(tmp_path / f"rank{rank}.pt", weights_only=True), model)


def test_no_thread_outlives_a_group_that_a_script_destroys():
    """Those of PyTorch abort a process that ends while they drop tensors."""
    script = """
from pathlib import Path
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
from deliralike import DistributedDataParallel, join
network = DistributedDataParallel(torch.nn.Linear(3, 5), join())
network(torch.ones(7, 3)).sum().backward()
dist.destroy_process_group()
print([path.read_text() for path in Path("/proc/self/task").glob("*/comm")])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "python" in ended.stdout
    assert "gloo" not in ended.stdout


# delira
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_deliras_network_on_pytorch(count):
    network, history = delira_pytorch.main(["cpu"] * count)

    torch.manual_seed(5)
    features = torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    )
    plain = torch.nn.ModuleDict(
        {"features": features, "head": torch.nn.Linear(54, 10)}
    ).double()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    for batch, (metrics, losses, predictions) in zip(
        delira_pytorch.batches(), history, strict=True
    ):
        scores = plain.head(
            features(torch.from_numpy(batch["data"]).double()).flatten(1)
        )
        label = torch.from_numpy(batch["label"])
        optimizer.zero_grad()
        (loss := F.cross_entropy(scores, label)).backward()
        optimizer.step()
        assert losses == {"ce": pytest.approx(loss.item(), abs=1e-12)}
        assert metrics == {
            "accuracy": pytest.approx(
                np.mean(scores.argmax(1).numpy() == batch["label"])
            )
        }
        np.testing.assert_allclose(predictions["pred"], scores.detach(), atol=1e-12)
    same(network, plain)
    assert type(network.module if count > 1 else network).__name__ == "SmallClassifier"


class PlainClassifier(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = chainer.links.Convolution2D(1, 6, 3)
            self.head = chainer.links.Linear(54, 10)

    def forward(self, images):
        functions = chainer.functions
        return self.head(functions.max_pooling_2d(functions.relu(self.conv(images)), 2))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_deliras_network_on_chainer(count):
    with chainer.using_config("dtype", np.float64):
        network, history = delira_chainer.main(["@numpy"] * count)
        np.random.seed(5)
        plain = PlainClassifier()
        optimizer = chainer.optimizers.Adam(alpha=0.01).setup(plain)
        for batch, (metrics, losses, predictions) in zip(
            delira_chainer.batches(), history, strict=True
        ):
            scores, label = plain(batch["data"]), batch["label"].astype(np.int32)
            plain.cleargrads()
            (loss := chainer.functions.softmax_cross_entropy(scores, label)).backward()
            optimizer.update()
            assert losses == {"ce": pytest.approx(float(loss.array), abs=1e-12)}
            assert metrics == {
                "accuracy": pytest.approx(np.mean(scores.array.argmax(1) == label))
            }
            np.testing.assert_allclose(
                predictions["pred"].array, scores.array, atol=1e-12
            )
        found = {name: parameter.array for name, parameter in network.namedparams()}
        same(found, {name: parameter.array for name, parameter in plain.namedparams()})


# MMEngine
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [None, ["cpu", "cpu"]])
def test_mmengines_first_tutorial(devices):
    model, runner, history = mmengine_quickstart.main(devices)

    torch.manual_seed(2)
    plain = mmengine_quickstart.MMClassifier().double()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    train, validation = mmengine_quickstart.loaders()
    for epoch in range(2):
        for pixels, labels in train:  # the next epoch each time
            optimizer.zero_grad()
            F.cross_entropy(
                plain(torch.from_numpy(pixels)), torch.from_numpy(labels)
            ).backward()
            optimizer.step()
        pixels, labels = (
            np.concatenate(each) for each in zip(*validation, strict=True)
        )
        right = plain(torch.from_numpy(pixels)).argmax(1).numpy() == labels
        assert history.epochs[epoch].held_out["accuracy"] == pytest.approx(right.mean())
    same(model, plain)
    predicted, targets = runner.network.test_step((pixels, labels))
    np.testing.assert_allclose(
        predicted.detach(), plain(torch.from_numpy(pixels)).detach(), atol=1e-12
    )
    assert np.array_equal(targets, labels)


def test_mmengines_tutorial_of_a_gan():
    model, losses = mmengine_gan.main()

    torch.manual_seed(4)
    plain = mmengine_gan.GAN().double()
    generator, critic = plain.generator, plain.discriminator
    of_generator, of_critic = (
        torch.optim.Adam(each.parameters(), lr=0.01) for each in (generator, critic)
    )
    for (real, noise), found in zip(mmengine_gan.batches(plain), losses, strict=True):
        real, noise = torch.from_numpy(real), torch.from_numpy(noise)
        of_critic.zero_grad()
        of_real, of_fake = critic(real), critic(generator(noise).detach())
        (judged := F.softplus(-of_real).mean() + F.softplus(of_fake).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (fooled := F.softplus(-critic(generator(noise))).mean()).backward()
        of_generator.step()
        assert float(found["loss_disc"]) == pytest.approx(judged.item(), abs=1e-12)
        assert float(found["loss_gen"]) == pytest.approx(fooled.item(), abs=1e-12)
    same(model.native, plain)
    np.testing.assert_allclose(
        model.test_step(noise.numpy()).detach(), generator(noise).detach(), atol=1e-12
    )
