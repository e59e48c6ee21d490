"""The command line as a user meets it: what is printed, written and refused."""

import os
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import deliralike
from deliralike import backends, data, weights, zoo
from deliralike.cli import app
from deliralike.cli.options import key_values
from deliralike.errors import SettingError, UnknownName
from deliralike.training import evaluate
from deliralike.training.experiment import compare
from examples import demo as example


def run(*arguments, code=0, **options):
    """Run a command in this process."""
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], **options
    )
    if result.exit_code != code:
        raise AssertionError(
            f"exit code {result.exit_code}: {result.output}"
        ) from result.exception
    return result


def python(*arguments, **options):
    """Run Python in a process of its own."""
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, **options
    )


#: Tests that share a demo, or a trained run, share a process, so that it is made once.
OF_DEMO, OF_TRAINED = (
    pytest.mark.xdist_group("cli-demo"),
    pytest.mark.xdist_group("cli-trained"),
)


def some_digits():
    """A part of the digits: XLA convolves in float64 slowly."""
    digits = data.load("digits")
    return data.Dataset(
        "digits",
        digits.train.take(slice(130)),
        digits.held_out.take(slice(60)),
        tuple("0123456789"),
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One small demo on all backends: what it printed and its folder."""
    folder, few = tmp_path_factory.mktemp("demo") / "tiny", some_digits()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", {"digits": few}.__getitem__)
        wide = {"COLUMNS": "200"}
        arguments = ["--epochs", "1", "--out", str(folder)]
        result = CliRunner().invoke(example.app, arguments, env=wide)
    return result.stdout, folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small trained run."""
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    options = [
        "--epochs",
        2,
        "--seed",
        3,
        "--set",
        "hidden=(16,)",
        "--set",
        "dropout=0.1",
        "--lr",
        0.1,
    ]
    return run("train", "mlp", *options, "--out", folder).stdout, folder


# The demo
# -----------------------------------------------------------------------------


@OF_DEMO
def test_the_demo_prints_a_row_for_each_backend(demo):
    printed, _ = demo
    for name in ("torch", "chainer", "jax"):
        assert backends.get(name).version() in printed
    assert "\x1b" not in printed


def rows_of(printed):
    """The cells of the demo's table, by the framework's name."""
    lines = [line.split() for line in printed.splitlines()]
    return {line[0]: line for line in lines if line and len(line) > 5}


@OF_DEMO
def test_the_demo_finds_all_backends_to_agree(demo):
    rows = rows_of(demo[0])
    assert rows["torch"][-3:] == ["reference"] * 3
    for name in ("chainer", "jax"):
        assert rows[name][-5] == rows["torch"][-5]  # the accuracy
        differences = list(map(float, rows[name][-3:]))
        assert max(differences) < 1e-10
        # Two frameworks do not round alike in each of many gradients; in four losses they may.
        assert differences[-1] > 0


@OF_DEMO
def test_the_parts_of_a_demo_are_runs_that_can_be_listed(demo):
    _, folder = demo
    listed = compare.read_runs(folder)
    assert sorted((row.folder.name, row.status) for row in listed) == [
        (name, "finished") for name in ("chainer", "jax", "torch")
    ]


@OF_DEMO
@pytest.mark.parametrize("name", ["torch", "chainer", "jax"])
def test_the_weights_of_the_demo_give_the_accuracy_that_it_printed(demo, name):
    printed, folder = demo
    network = zoo.build(
        "resnet8", backend="torch", dtype="float64", in_channels=1, num_classes=10
    )
    weights.load(network, folder / name / "weights.safetensors")
    accuracy = evaluate(network, some_digits().held_out)["accuracy"]
    assert f"{accuracy:.2%}" == rows_of(printed)[name][-5]


@OF_DEMO
def test_a_part_of_the_demo_is_a_run_of_its_own(demo):
    _, folder = demo
    assert (
        "of 359 held-out samples"
        in run(
            "predict", folder / "chainer", "--backend", "torch", "--data", "digits"
        ).stdout
    )


@OF_DEMO
def test_the_demo_as_a_whole_is_no_single_run(demo):
    _, folder = demo
    assert (
        f"name one, for example '{folder / 'chainer'}'"
        in run("predict", folder, code=2).stderr
    )


def test_a_missing_backend_is_named_with_how_to_install_it(monkeypatch):
    absent = backends.Entry(
        "absent:BACKEND", ("no_such_package",), "pip install something"
    )
    monkeypatch.setitem(backends._SHIPPED, "absent", absent)
    assert (
        "backend 'absent' needs the package 'no_such_package', not installed here: pip install "
        "something"
        in run("compare", "mlp", "--backends", "absent,torch", code=2).stderr
    )
    listed = run("backends").stdout
    assert listed.count("installed") >= 4
    assert "pip install something" in listed


@pytest.mark.parametrize("words", [["compare", "mlp"]])
def test_without_any_framework_a_command_says_how_to_install_one(
    words, tmp_path, monkeypatch
):
    absent = backends.Entry(
        "absent:BACKEND", ("no_such_package",), "pip install something"
    )
    monkeypatch.setattr(backends, "_SHIPPED", dict.fromkeys(backends._SHIPPED, absent))
    monkeypatch.chdir(tmp_path)
    assert "not installed here: pip install something" in run(*words, code=2).stderr
    assert os.listdir(tmp_path) == []


def test_a_broken_backend_shows_its_error_and_hides_no_other(monkeypatch):
    monkeypatch.setitem(
        backends._SHIPPED, "broken", backends.Entry("json:no_such_attribute")
    )
    printed = run("backends", "all").stdout
    assert r"\n" not in printed
    assert "broken" in printed
    assert "no_such_attribute" in " ".join(printed.split())
    assert printed.count("ready") == 3


# Training and prediction
# -----------------------------------------------------------------------------


@OF_TRAINED
def test_a_run_folder_holds_settings_metrics_curves_and_weights(trained):
    _, folder = trained
    files = {
        "code.json",
        "curves.png",
        "environment.json",
        "epochs.csv",
        "metrics.jsonl",
        "settings.toml",
    }
    files |= {"checkpoints", "status.json", "steps.csv", "weights.safetensors"}
    assert files <= set(os.listdir(folder))
    settings = tomllib.loads((folder / "settings.toml").read_text())
    chosen = {"in_features": 64, "out_features": 10, "hidden": [16], "dropout": 0.1}
    assert settings["network_settings"] == chosen
    assert settings["optimizer_settings"]["lr"] == 0.1
    assert load_file(folder / "weights.safetensors")["layers.0.weight"].shape == (
        16,
        64,
    )


@OF_TRAINED
def test_weights_are_converted_for_an_architecture(trained, tmp_path):
    settings, folder = trained
    source, target = folder / "weights.safetensors", tmp_path / "weights.npz"
    state = load_file(source)
    sizes = (
        f"in_features={state['layers.0.weight'].shape[1]}",
        f"out_features={len(state['layers.1.bias'])}",
    )
    hidden = f"hidden=({len(state['layers.0.bias'])},)"
    chosen = [part for size in (*sizes, hidden) for part in ("--set", size)]
    convert = ("convert", source, target, "--model", "mlp", "--to", "chainer", *chosen)
    assert "4 arrays" in run(*convert, "--dry-run").stdout
    assert not target.exists()
    printed = run(*convert).stdout
    assert "written as chainer: 4 renamed" in printed
    assert "not checked" in printed
    assert (np.load(target)["layers/1/W"] == state["layers.1.weight"]).all()


# The zoo
# -----------------------------------------------------------------------------


def test_the_zoo_lists_every_network_with_its_published_count():
    printed = run("zoo").stdout
    assert all(name in printed for name in zoo.list())
    assert "11,689,512" in printed
    assert "25,557,032" in printed


def test_a_network_is_shown_with_settings_layers_and_source():
    printed = run(
        "zoo", "resnet18", "--set", "num_classes=7", "--input", "3x64x48"
    ).stdout
    for part in (
        "num_classes",
        "layer4.1.conv2",
        "(1, 512, 2, 2)",
        "1512.03385",
        "11,180,103",
    ):
        assert part in printed


# Mistakes
# -----------------------------------------------------------------------------


#: What is wrong with a command, and what is said of it.
MISTAKES = [
    ("train resnet9", "UnknownName: network: the zoo has no 'resnet9'. Did you mean"),
    (
        "train mlp --backend tourch",
        "BackendUnavailable: backend: there is no backend 'tourch'. Did you mean 'torch'?",
    ),
    (
        "train mlp --data digit",
        "UnknownName: data: there is no dataset 'digit'. Did you mean 'digits'?",
    ),
    (
        "train unet",
        "SettingError: network 'unet' is for segmentation, dataset 'digits' is for classification",
    ),
    ("train mlp --set dept=3", "ArgumentError: mlp has no setting 'dept'"),
    ("train mlp --set depth", "SettingError: --set 'depth': wanted key=value"),
    ("train mlp --set in_features=65", "ShapeError:"),
    (
        "train mlp --set dtype=float12",
        "DtypeError: backend 'torch' cannot compute in 'float12'",
    ),
    (
        "train mlp --device cuda:99",
        "DeviceError: backend 'torch' has no device 'cuda:99'",
    ),
    (
        "train mlp --optimizer sdg",
        "UnknownName: optimizer='sdg' is unknown. Did you mean 'sgd'?",
    ),
    (
        "train mlp --set optimizer.mu=1",
        "ArgumentError: optimizer_settings: optimizer 'sgd' has no setting 'mu'",
    ),
    ("train mlp --out .", "SettingError: '.' exists already and is left as it is"),
    ("train mlp --out file/x", "SettingError: the folder 'file/x' cannot be made"),
    ("train mlp --epochs 0", "--epochs"),
    ("train mlp --lr quick", "--lr"),
    ("trian", "No such command 'trian'"),
    (
        "predict nowhere",
        "SettingError: 'nowhere' is not the folder of a run: there is no settings.toml in it",
    ),
    ("predict torn", "does not hold settings"),
    ("convert nothing.pth x.npz", "WeightFileMissing: there is no file 'nothing.pth'"),
    ("convert file x.npz", "is not a weight file: found an empty file"),
    (
        "convert file x.npz --model resnet81",
        "UnknownName: the zoo has no 'resnet81'. Did you mean",
    ),
    (
        "convert file x.npz --check a:b",
        "SettingError: which network the weights belong to is not said",
    ),
    ("zoo resnet81", "UnknownName: the zoo has no 'resnet81'. Did you mean"),
    (
        "zoo resnet18 --input 3xA",
        "SettingError: --input '3xA': wanted whole numbers like 3x224x224",
    ),
]


def test_a_mistake_is_one_message_and_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "settings.toml").write_text("{")
    (tmp_path / "file").write_text("")
    assert not (wrong := wrongly_refused(MISTAKES)), "\n".join(wrong)


def wrongly_refused(mistakes):
    """The commands that do not end with their one message and exit code 2, or that leave something
    behind."""
    return [
        found
        for arguments, message in mistakes
        if (found := _wrongly_refused(arguments, message))
    ]


def _wrongly_refused(arguments, message):
    before = sorted(os.listdir())
    result = CliRunner().invoke(app, arguments.split())
    refused = result.exit_code == 2 and message in result.stderr and result.stdout == ""
    left = sorted(set(os.listdir()) ^ set(before))
    return (
        ""
        if refused and "Traceback" not in result.output and not left
        else f"{arguments}: {result!r} {result.output} {left}"
    )


def test_debug_shows_the_traceback_wherever_it_stands():
    assert isinstance(run("--debug", "zoo", "resnet81", code=1).exception, UnknownName)
    result = python("-m", "deliralike", "zoo", "resnet81", "--debug")
    assert "Traceback" in result.stderr
    assert result.returncode == 1


def test_ctrl_c_ends_cleanly(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "list", interrupt)
    result = run("zoo", code=130)
    assert result.stderr == "deliralike: stopped\n"


# Processes of their own
# -----------------------------------------------------------------------------


def test_an_error_in_a_process_of_its_own_has_no_traceback(tmp_path):
    result = python(
        "-m",
        "deliralike",
        "train",
        "resnet81",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "deliralike: UnknownName: network: the zoo has no 'resnet81'. "
        "Did you mean 'resnet8' or 'resnet18'?\n"
    )


HEAVY = ("torch", "chainer", "jax", "sklearn", "matplotlib")
ROOT = os.path.dirname(os.path.dirname(deliralike.__file__))


LOOKING = [
    *(["--help"], ["--version"], ["backends"]),
    *(["zoo"], ["zoo", "resnet18"], ["train", "--help"]),
]


def test_looking_around_loads_no_framework():
    code = (
        "import sys\n"
        "from deliralike.cli import main\n"
        f"for arguments in {LOOKING!r}:\n"
        "    sys.argv = ['deliralike', *arguments]\n"
        "    try: main()\n"
        "    except SystemExit as end:\n"
        f"        print(*arguments, end.code, [name for name in {HEAVY} if name in sys.modules], "
        "file=sys.stderr)"
    )
    result = python("-c", code)
    assert result.stderr.splitlines() == [
        f"{' '.join(arguments)} 0 []" for arguments in LOOKING
    ]
    assert "\x1b" not in result.stdout


def test_help_says_what_stands_in_for_an_option_that_is_left_out():
    printed = " ".join(run("train", "--help", env={"COLUMNS": "200"}).stdout.split())
    assert "(default: runs/NETWORK-0001, -0002 …)" in printed
    assert "(default: depends on the optimizer)" in printed


def test_the_version_is_printed():
    assert run("--version").stdout == f"deliralike {deliralike.__version__}\n"


def test_a_reader_that_stops_early_gets_no_traceback():
    command = f"{sys.executable} -m deliralike zoo resnet152 | head -n 1"
    result = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in result.stderr
    assert result.stdout.startswith("resnet152")


def test_what_an_encoding_lacks_is_written_by_its_number():
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = python("-m", "deliralike", "settings", env=ascii_only)
    assert result.returncode == 0, result.stderr
    assert r"\u2026" in result.stdout


@pytest.mark.parametrize("value", ["{[]: 1}", "-" * 100_000 + "1", "[1, " * 20_000])
def test_a_value_that_pythons_parser_gives_up_on_is_one_error(value):
    with pytest.raises(SettingError, match="--set .*the value cannot be read: "):
        key_values([f"a={value}"], "--set")
