"""Settings: what each may be, files of them, and that two of them share nothing."""

import math
import re
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest

from deliralike import data, zoo
from deliralike.errors import (
    ArgumentError,
    BackendUnavailable,
    DeliralikeError,
    SettingError,
    UnknownName,
)
from deliralike.optim.rules import RULES
from deliralike.training.experiment import (
    Experiment,
    Settings,
    as_toml,
    documentation,
    read_settings,
    write_settings,
)
from deliralike.training.experiment.files import changed, settings_from
from tests.losses import cross_entropy

# Something other than the default for each setting.
OTHERS = {
    "network": "mlp",
    "network_settings": {"hidden": (16, 8), "dropout": 0.25},
    "weights": "first/weights.safetensors",
    "data": "faces",
    "data_settings": {"held_out": 0.3},
    "transforms": ({"name": "flip"}, {"name": "noise", "std": 0.1}),
    "held_out_transforms": ({"name": "normalise", "mean": (0.5,), "std": 2.0},),
    "batch_transforms": ({"name": "cutmix", "alpha": 0.5},),
    "batch_size": 7,
    "drop_last": True,
    "workers": 2,
    "worker_kind": "process",
    "folds": 5,
    "fold": 2,
    "backend": "jax",
    "devices": ("cpu:0", "cpu:1"),
    "buffers": "root",
    "dtype": "float64",
    "precision": "bfloat16",
    "compile": True,
    "checkpoint_blocks": ("layer*.*", "head"),
    "rng": "native",
    "seed": 2**40,
    "optimizer": "adamw",
    "optimizer_settings": {"lr": 1e-07, "betas": (0.8, 0.99), "weight_decay": 0.01},
    "groups": {"*.bias": {"weight_decay": 0.0}, 'odd "name"\\': {"lr": 1e-3}},
    "layer_decay": 0.75,
    "freeze": {"layers.*": 3, "head": None},
    "schedule": "warmup",
    "schedule_settings": {"steps": 10, "then": {"name": "cosine", "steps": 90}},
    "accumulate": 3,
    "clip_norm": 0.1,
    "clip_value": 1e300,
    "average": 0.999,
    "epochs": 11,
    "metrics": ({"name": "loss"}, {"name": "top-k", "k": 3}),
    "early_stopping": {"monitor": "loss", "patience": 0},
    "plateau": {"factor": 0.5, "patience": 2},
    "checkpoints": {"every_epochs": None, "every_steps": 3, "keep": 1},
    "tensorboard": True,
    "wandb": {"project": "cells", "mode": "offline"},
    "mlflow": {"experiment": "cells", "tracking_uri": "sqlite:///runs.db"},
    "stop_on_nan": 10,
}


def test_every_setting_has_another_value_below():
    assert sorted(OTHERS) == sorted(each.name for each in fields(Settings))


def test_every_setting_is_documented():
    assert all(
        re.fullmatch(r"\S.{5,}[.:].*|\S.{15,}", text)
        for text in documentation().values()
    )


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "fold"])
def test_a_setting_that_is_written_as_toml_reads_back_equal(tmp_path, name):
    needed = {
        "optimizer_settings": "optimizer",
        "schedule": "schedule_settings",
        "schedule_settings": "schedule",
        "groups": "optimizer",
    }.get(name, name)
    settings = Settings(
        **{"network": "mlp", name: OTHERS[name], needed: OTHERS[needed]}
    )
    assert getattr(settings, name) == OTHERS[name]
    write_settings(tmp_path / "settings.toml", settings)
    assert read_settings(tmp_path / "settings.toml") == settings


def test_all_settings_together_read_back_equal(tmp_path):
    settings = Settings(**OTHERS)
    (tmp_path / "all.toml").write_text(as_toml(settings))
    assert read_settings(tmp_path / "all.toml") == settings


def test_what_is_written_is_what_the_standard_library_reads():
    content = tomllib.loads(as_toml(Settings(**OTHERS)))
    assert list(content) == [each.name for each in fields(Settings)]
    assert content["schedule_settings"] == {
        "steps": 10,
        "then": {"name": "cosine", "steps": 90},
    }
    assert content["metrics"] == ["loss", {"name": "top-k", "k": 3}]


def test_each_setting_in_the_file_stands_under_its_documentation():
    lines = as_toml(Settings(network="mlp")).splitlines()
    comments = " ".join(
        line.removeprefix("#").strip() for line in lines if line.startswith("#")
    )
    assert [text for text in documentation().values() if text not in comments] == []


def test_none_reads_back_as_none_within_tables_too(tmp_path):
    settings = Settings(
        network="unet",
        network_settings={"norm": None},
        checkpoints=None,
        clip_norm=None,
    )
    write_settings(tmp_path / "settings.toml", settings)
    again = read_settings(tmp_path / "settings.toml")
    assert (again.network_settings, again.checkpoints, again.clip_norm) == (
        {"norm": None},
        None,
        None,
    )


def test_settings_share_nothing_with_what_they_were_made_from_nor_with_each_other():
    given = {"hidden": [4], "deep": {"er": [1]}}
    first = Settings(network="mlp", network_settings=given)
    second = first.with_(seed=1)
    given["hidden"].append(5)
    first.network_settings["dropout"] = 0.5
    first.checkpoints["keep"] = 9
    assert second.network_settings == {"hidden": (4,), "deep": {"er": (1,)}}
    assert (
        second.checkpoints
        == Settings(network="mlp").checkpoints
        == {"every_epochs": 1, "keep": 2}
    )


def test_numbers_of_numpy_become_those_of_python(tmp_path):
    settings = Settings(
        network="mlp",
        optimizer_settings={"lr": np.float32(0.5)},
        network_settings={"k": np.int64(3)},
    )
    assert type(settings.optimizer_settings["lr"]) is float
    write_settings(tmp_path / "settings.toml", settings)
    assert read_settings(tmp_path / "settings.toml").network_settings == {"k": 3}


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        (
            "network",
            "resnet81",
            UnknownName,
            "network: the zoo has no 'resnet81'. Did you mean 'resnet8'",
        ),
        (
            "network_settings",
            [1],
            SettingError,
            r"network_settings=\[1\] must be a table",
        ),
        (
            "network_settings",
            {"f": len},
            SettingError,
            "network_settings.f=<built-in function len> is a builtin_func",
        ),
        (
            "network_settings",
            {3: 1},
            SettingError,
            "a key of network_settings=3 must be a text",
        ),
        ("data", "", SettingError, "data='' must be a text"),
        ("wandb", {}, SettingError, "wandb needs 'project': wandb = {project = ...}"),
        ("transforms", "flip", SettingError, r"transforms='flip' must be a list"),
        (
            "transforms",
            ["flop"],
            UnknownName,
            "transforms: there is no transform 'flop'. Did you mean 'flip'",
        ),
        (
            "transforms",
            [{"name": "flip", "probability": 2}],
            SettingError,
            "transforms: probability must lie between",
        ),
        (
            "batch_transforms",
            ["flip"],
            UnknownName,
            "batch_transforms: there is no transform of batches 'flip'. Known: cutmix, mixup",
        ),
        (
            "batch_transforms",
            [{"name": "cutmix", "alpha": math.inf}],
            SettingError,
            "batch_transforms: CutMix: alpha=inf must be a finite number above 0",
        ),
        (
            "batch_transforms",
            ["mixup", "cutmix"],
            SettingError,
            "batch_transforms: 'mixup' and 'cutmix' cannot follow one another.*name one alone",
        ),
        (
            "batch_size",
            0,
            SettingError,
            "batch_size=0 must be a whole number of at least 1",
        ),
        ("drop_last", 1, SettingError, "drop_last=1 must be true or false"),
        (
            "workers",
            -1,
            SettingError,
            "workers=-1 must be a whole number of at least 0",
        ),
        (
            "worker_kind",
            "fiber",
            UnknownName,
            "worker_kind='fiber' is unknown. Known: process, thread",
        ),
        ("fold", 1, SettingError, "fold=1 needs folds to be set"),
        (
            "backend",
            "tourch",
            BackendUnavailable,
            "backend: there is no backend 'tourch'. Did you mean 'torch'",
        ),
        ("devices", "cpu", SettingError, "devices='cpu' must be a list"),
        (
            "precision",
            "float8",
            UnknownName,
            "precision='float8' is unknown. Did you mean 'float16'",
        ),
        ("seed", -1, SettingError, "seed=-1 must be a whole number of at least 0"),
        (
            "optimizer",
            "sdg",
            UnknownName,
            "optimizer='sdg' is unknown. Did you mean 'sgd'",
        ),
        (
            "optimizer_settings",
            {"lr": "1e-3"},
            SettingError,
            "optimizer_settings: SGD: lr='1e-3' must be a number",
        ),
        ("groups", {"*.bias": 3}, SettingError, r"groups.\*.bias=3 must be a table"),
        (
            "groups",
            {"*.bias": {"wd": 3}},
            ArgumentError,
            r"groups\['\*.bias'\] has no setting 'wd'",
        ),
        (
            "schedule",
            "cosin",
            UnknownName,
            "schedule='cosin' is unknown. Did you mean 'cosine'",
        ),
        (
            "schedule_settings",
            {"steps": 3},
            SettingError,
            "schedule_settings.* no schedule",
        ),
        ("clip_norm", 0, SettingError, "clip_norm=0 must be a number above 0"),
        ("clip_value", "1", SettingError, "clip_value='1' must be a number above 0"),
        (
            "average",
            1.0,
            SettingError,
            "average=1.0 must be a number above 0 and below 1",
        ),
        ("epochs", 0, SettingError, "epochs=0 must be a whole number of at least 1"),
        (
            "metrics",
            ["acuracy"],
            UnknownName,
            "metrics: there is no metric 'acuracy'. Did you mean 'accuracy'",
        ),
        (
            "early_stopping",
            {"patients": 3},
            ArgumentError,
            "early_stopping has no setting 'patients'.*'patience'",
        ),
        (
            "checkpoints",
            {"folder": "x"},
            ArgumentError,
            "checkpoints has no setting 'folder'",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_with_what_came_and_what_was_wanted(
    name, value, error, message
):
    with pytest.raises(error, match=message):
        Settings(**{"network": "mlp", name: value})


@pytest.mark.parametrize(
    "given",
    [
        {"transforms": [{"name": "noise", "std": "0.N"}]},
        {"batch_transforms": [{"name": "mixup", "alpha": "0.N"}]},
        {"early_stopping": {"monitor": "loss", "patience": "two"}},
        {"metrics": [{"name": "top-k", "k": "x"}]},
    ],
    ids=str,
)
def test_a_part_with_a_text_for_a_number_is_refused_in_our_own_words(given):
    with pytest.raises(SettingError, match=f"^{next(reversed(given))}"):
        Settings(network="mlp", **given)


def test_a_fold_beyond_the_last_is_refused():
    with pytest.raises(
        SettingError, match="fold=4 needs a number from 1 to 3, the number of folds"
    ):
        Settings(network="mlp", folds=3, fold=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "network = 'mlp'\nepoch = 3",
            r"unknown setting 'epoch'. Did you mean 'epochs'\?",
        ),
        ("epochs = 3", "the setting 'network' is missing"),
        (
            "network = 'mlp'\n[optimizer_settings]\nlr = -1",
            "optimizer_settings: SGD: lr=-1 must be at least 0",
        ),
        (
            "network = 'mlp'\nnetwork = 'mlp'",
            "does not hold settings: Cannot overwrite a value",
        ),
        ("network", "does not hold settings"),
        ("\x00", "does not hold settings"),
    ],
)
def test_an_error_in_a_file_names_the_file_and_the_key(tmp_path, content, message):
    path = tmp_path / "settings.toml"
    path.write_text(content)
    with pytest.raises(DeliralikeError, match=f"settings.toml.*{message}"):
        read_settings(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.yaml", "a: 1", r"has the suffix '.yaml': settings are in .toml"),
        ("s.toml", b"\xff\xfe", "does not hold settings"),
        (
            "s.toml",
            None,
            "there is no file '.*s.toml': 'deliralike settings' prints one",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(
    tmp_path, name, content, message
):
    if content is not None:
        (tmp_path / name).write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
    with pytest.raises(SettingError, match=message):
        read_settings(tmp_path / name)


def test_changes_come_before_the_file_and_reach_into_tables(tmp_path):
    write_settings(
        tmp_path / "s.toml",
        Settings(network="mlp", optimizer_settings={"lr": 0.5, "momentum": 0.1}),
    )
    settings = read_settings(
        tmp_path / "s.toml",
        {"optimizer_settings.lr": 0.25, "schedule": "constant", "epochs": 1},
    )
    assert settings.optimizer_settings == {"lr": 0.25, "momentum": 0.1}
    assert (settings.schedule, settings.epochs) == ("constant", 1)


def test_a_key_that_reaches_into_no_table_is_refused():
    with pytest.raises(
        SettingError,
        match="epochs.first: epochs is 5, no table that 'first' could be set in",
    ):
        changed({"epochs": 5}, {"epochs.first": 1})


def test_devices_are_not_taken_over_to_another_backend_but_may_be_given():
    settings = Settings(network="mlp", devices=["cpu", "cpu"])
    assert settings.with_(backend="jax").devices == ()
    assert settings.with_(backend="jax", devices=["cpu:0"]).devices == ("cpu:0",)
    assert settings.with_(seed=3).devices == ("cpu", "cpu")


def test_an_unknown_change_is_named():
    with pytest.raises(
        ArgumentError, match=r"Settings has no setting 'epoch'. Did you mean 'epochs'"
    ):
        Settings(network="mlp").with_(epoch=3)


def test_the_numbers_of_a_rule_that_are_left_out_are_the_usual_ones():
    assert Settings(network="mlp").rule().lr == 0.05
    assert (
        Settings(network="mlp", optimizer_settings={"lr": 0.3}).rule().momentum == 0.9
    )


def test_every_rule_has_usual_numbers_that_lower_a_loss():
    for name in RULES:
        network = zoo.build(
            "mlp", backend="torch", in_features=3, out_features=2, seed=1
        )
        rule = Settings(network="mlp", optimizer=name).rule()
        optimizer = network.backend.optimizer(rule, network)
        x, y = np.ones((4, 3), np.float32), np.zeros(4, np.int64)
        losses = [float(optimizer.update(cross_entropy, x, y)) for _ in range(5)]
        assert losses[-1] < losses[0], name


def test_settings_are_equal_exactly_when_all_of_them_are():
    settings = Settings(**OTHERS)
    assert settings == settings_from(OTHERS) == replace(settings)
    assert all(
        settings != replace(settings, **{name: value})
        for name, value in [("seed", 1), ("groups", {})]
    )


def test_samples_of_one_class_are_refused_where_classes_are_learned():
    samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
    dataset = data.Dataset("mine", samples, samples, ("cat",))
    settings = Settings(network="mlp")
    with pytest.raises(SettingError, match="'mine' has one class, 'cat'"):
        Experiment(settings, dataset=dataset).complete()
    Experiment(settings, dataset=dataset, losses={"own": cross_entropy}).complete()
