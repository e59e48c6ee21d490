"""``deliralike weights`` and ``deliralike zoo --weights``, and what `check` finds on the host."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from deliralike import weights as weight_files
from deliralike import zoo
from deliralike.cli import app
from deliralike.zoo.published import names
from deliralike.zoo.published.entries import WeightsTable, registry
from tests.published import checking

NAME = "torchvision/IMAGENET1K_V1"
PATH = "/models/squeezenet1_1-b8a52dc0.pth"


def printed(*arguments, code=0):
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The file of a whole network, whose class 3 is the answer to everything."""
    path = tmp_path_factory.mktemp("weights") / "x.safetensors"
    state = zoo.build("squeezenet1_1", backend="torch").neutral_state()
    state["classifier.1.bias"] = np.where(np.arange(1000) == 3, 50, 0).astype(
        np.float32
    )
    weight_files.write(path, state)
    return path.read_bytes()


@pytest.fixture
def entry(host, content, monkeypatch):
    """The entry of that file, on the host."""
    (entry,) = zoo.weights("squeezenet1_1")
    file = replace(entry.file, sha256=hashlib.sha256(content).hexdigest()[:8])
    assert file.url.endswith(PATH)
    host.files[PATH] = content
    changed = replace(entry, file=file, megabytes=len(content) / 2**20)
    rows = [changed if one == entry else one for one in registry()]
    monkeypatch.setattr(names, "registry", lambda: WeightsTable(rows))
    return changed


def test_weights_are_pulled(entry):
    size = f"{entry.megabytes:.1f} MiB"
    assert f"squeezenet1_1, {NAME}: {entry.file.place} ({size})" in printed(
        "weights", "pull", "squeezenet1_1"
    )


def test_the_zoo_lists_the_weights_of_one_or_all():
    one = printed("zoo", "squeezenet1_1", "--weights")
    assert "58.178 acc@1 (ImageNet-1K)" in one
    assert "The star marks weights='pretrained'" in one
    assert "timm/resnet50.a1_in1k" in printed("zoo", "--weights")
    assert "published weights: 1, see deliralike zoo" in printed("zoo", "squeezenet1_1")
    assert "nobody is known to have published weights" in printed(
        "zoo", "lenet", "--weights"
    )
    assert "Did you mean" in printed("zoo", "squeezenet1_9", "--weights", code=2)


def test_a_check_with_a_download_reads_hash_and_keys(entry):
    found = checking.check(entry, download=True)
    assert found.findings == ("agrees", "agrees", "agrees", "agrees", "not checked")
    without_hash = replace(entry, file=replace(entry.file, sha256=""))
    assert checking.check(without_hash).hash == "not stated"


@pytest.mark.parametrize(
    ("right", "words"), [(2, "agrees"), (0, "differs: 0.00% of 3 pictures")]
)
def test_a_check_with_pictures_measures_the_accuracy(right, words, entry, tmp_path):
    labels = entry.label_names()
    folder = tmp_path / "pictures"
    for number in range(3):
        label = labels[3] if number < right else labels[5]
        (folder / label).mkdir(exist_ok=True, parents=True)
        picture = np.full((230, 250, 3), 80 * number, np.uint8)
        Image.fromarray(picture).save(folder / label / f"{number}.png")
    assert checking.check(entry, data=folder).accuracy.startswith(words)


@pytest.mark.parametrize(
    ("change", "column", "words"),
    [
        ({"megabytes": 9.9}, "size", "differs: .* MiB, the registry has 9.9"),
        (
            {"settings": (("num_classes", 5), ("in_channels", 1), ("width", 3))},
            "keys",
            "differs: ",
        ),
        ({"sha256": "00000000"}, "hash", "differs: .* is not what was published"),
        (
            {"url": "https://download.pytorch.org/gone.pth"},
            "address",
            "differs: .* answered 404",
        ),
        ({"url": "http://127.0.0.1:1/gone.pth"}, "address", "no answer: "),
    ],
)
def test_a_check_finds_what_differs(change, column, words, entry):
    of_file = {key: change[key] for key in ("sha256", "url") if key in change}
    of_entry = {key: value for key, value in change.items() if key not in of_file}
    entry = replace(entry, file=replace(entry.file, **of_file), **of_entry)
    found = checking.check(entry, download=True)
    assert re.match(words, getattr(found, column)), found
    assert not found.agrees


def test_a_check_that_finds_a_difference_fails(entry, host, capsys):
    assert checking.main(["squeezenet1_1"]) == 0
    del host.files[PATH]
    assert checking.main(["squeezenet1_1"]) == 1
    assert "Differ: address 1." in capsys.readouterr().out
