"""Fine-tuning: rates by depth and by group, parts that are frozen for some epochs, weights of a
file."""

import numpy as np
import pytest
import torch

from deliralike import Network, backends, zoo
from deliralike.errors import SettingError, UnknownName, WeightFileMissing
from deliralike.optim import rules
from deliralike.optim.groups import Groups
from deliralike.optim.layer_decay import groups_by_depth
from deliralike.training import Checkpoint, Checkpoints, Freeze, Trainer
from deliralike.training.experiment import Experiment, Settings
from tests.references import allow_torchvision
from tests.training.experiments import StopAt
from tests.training.small_runs import Do, network, samples
from tests.training.test_frozen_parts import Nested


class Deep(Network):
    """A stem, two blocks of one class in a list, a norm and a head."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.stem = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(Network):
    """A layer with a way past it."""

    def __init__(self):
        super().__init__()
        self.mlp = self.nn.Sequential(self.nn.Linear(4, 4), self.nn.ReLU())

    def forward(self, x):
        return x + self.mlp(x)


POWERS = {"stem": 3, "blocks.0": 2, "blocks.1": 1, "norm": 1, "head": 0}


def power(name):
    return next(POWERS[layer] for layer in POWERS if name.startswith(layer))


def fitted(net, rule, batch_size=7, **options):
    """The change of each weight in one epoch."""
    before = net.neutral_state()
    Trainer(net, rule, **options).fit(samples(), batch_size=batch_size)
    return {name: value - before[name] for name, value in net.neutral_state().items()}


def test_a_layer_learns_slower_than_the_one_after_it_by_the_decay(backend):
    rule = rules.rule("sgd", lr=0.1)
    plain = fitted(network(backend.name, Deep), rule)
    decayed = fitted(network(backend.name, Deep), rule, layer_decay=0.5)
    for name, change in plain.items():
        expected = change * 0.5 ** power(name)
        np.testing.assert_allclose(decayed[name], expected, rtol=1e-9, err_msg=name)


def test_groups_are_param_groups_of_pytorch_and_their_rates_decay_too(backend):
    groups = {"*.bias": {"weight_decay": 0.0}, "head.*": {"lr": 0.03}}
    rule = rules.rule("sgd", lr=0.1, weight_decay=0.2)
    found = fitted(
        network(backend.name, Deep), rule, groups=groups, layer_decay=0.5, batch_size=3
    )
    net = network("torch", Deep)
    before = net.neutral_state()
    param_groups = []
    for name, parameter in net.named_parameters():
        lr = 0.03 if name == "head.weight" else 0.1
        group = {"params": [parameter], "lr": lr * 0.5 ** power(name)}
        group["weight_decay"] = 0.0 if name.endswith("bias") else 0.2
        param_groups.append(group)
    Trainer(net, torch.optim.SGD(param_groups, lr=0.1)).fit(samples(), batch_size=3)
    for name, value in net.neutral_state().items():
        np.testing.assert_allclose(
            found[name], value - before[name], rtol=1e-8, atol=1e-12, err_msg=name
        )


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "vit_tiny_patch16_224",
        "convnext_atto",
        "swin_tiny_patch4_window7_224",
        "efficientnet_b0",
    ],
)
def test_rates_by_depth_are_those_of_timm(name):
    allow_torchvision()
    timm = pytest.importorskip("timm")
    from timm.optim import param_groups_layer_decay

    with torch.device("meta"):
        model = timm.create_model(name)
    net = backends.wrap(model)
    groups = Groups.of(rules.rule("sgd", lr=1.0), groups_by_depth(net, 1.0, 0.75))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    expected = {}
    for group in param_groups_layer_decay(model, layer_decay=0.75):
        for parameter in group["params"]:
            expected[names[id(parameter)]] = group["lr_scale"]
    found = {name: groups.rules[groups.index(name)].lr for name in expected}
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_few_rates_of_many_patterns_are_as_many_rules():
    net = zoo.build("resnet18", backend="torch", num_classes=2)
    rule = rules.rule("adamw", lr=0.1)
    each = Trainer(net, rule, layer_decay=0.9, groups={"*.bias": {"weight_decay": 0.0}})
    assert len(each.optimizers["default"].native.param_groups) == 10 + 10


def test_groups_are_for_one_rule():
    net = network("torch")
    message = "groups and layer_decay are for one update rule, not for a dict"
    with pytest.raises(SettingError, match=message):
        Trainer(net, {"first": rules.rule("sgd", lr=0.1)}, groups={"*": {"lr": 1.0}})
    with pytest.raises(SettingError, match=r"layer_decay=1\.5 must be above 0"):
        Trainer(net, rules.rule("sgd", lr=0.1), layer_decay=1.5)


@pytest.mark.parametrize("replicas", [None, 2], ids=["single", "replicas"])
def test_parts_are_frozen_from_one_epoch_to_another(backend, replicas):
    net = network(backend.name, Nested)
    states = [net.neutral_state()]
    recorder = Do("on_epoch", lambda run, epoch: states.append(net.neutral_state()))
    each = Trainer(
        net,
        rules.rule("sgd", lr=0.1, momentum=0.9),
        callbacks=[Freeze("body.*", end=1), Freeze("head.*", start=1, end=2), recorder],
        devices=None if replicas is None else replicas * backend.devices()[:1],
    )
    each.fit(samples(), samples(3), epochs=3, batch_size=4)
    names = []
    for before, after in zip(states, states[1:], strict=False):
        changed = [
            name for name in after if not np.array_equal(before[name], after[name])
        ]
        names.append({name.partition(".")[0] for name in changed})
    assert names == [{"head"}, {"body"}, {"body", "head"}]


def test_a_run_that_goes_on_is_frozen_as_if_it_had_not_stopped(backend, tmp_path):
    def run(*callbacks, **options):
        net = network(backend.name, Nested)
        freezing = Freeze("body.*", end=2)
        rule = rules.rule("sgd", lr=0.1)
        each = Trainer(net, rule, callbacks=[freezing, *callbacks])
        each.fit(samples(), epochs=3, batch_size=4, **options)
        return net.neutral_state()

    expected = run()
    for step in (1, 3, 5):
        folder = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt):
            run(StopAt(step), Checkpoint(folder, every_steps=1))
        resumed = run(resume=Checkpoints.latest(folder))
        for name, value in expected.items():
            assert np.array_equal(resumed[name], value), (step, name)


def test_what_cannot_be_frozen_is_refused_before_the_first_step():
    with pytest.raises(SettingError, match="end=2 must be after start=2"):
        Freeze("body.*", 2, 2)
    each = Trainer(
        network("torch"), rules.rule("sgd", lr=0.1), callbacks=[Freeze("boddy.*", 5)]
    )
    with pytest.raises(UnknownName, match=r"Freeze: no weight matches 'boddy\.\*'"):
        each.fit(samples())


def test_settings_begin_with_weights_freeze_parts_and_let_rates_decay(tmp_path, drawn):
    mlp = {"network": "mlp", "network_settings": {"hidden": [8]}, "batch_size": 512}
    first = Experiment(mlp, epochs=1).run(tmp_path / "first")
    file = tmp_path / "first" / "weights.safetensors"
    tuned = Settings(
        **mlp,
        epochs=2,
        weights=str(file),
        freeze={"layers.0.*": 1},
        layer_decay=0.5,
        checkpoints={"every_epochs": 1, "keep": 5},
        optimizer_settings={"momentum": 0.0},
    )
    states = [first.network.neutral_state()]
    keep = Do("on_epoch", lambda run, _: states.append(run.network.neutral_state()))
    result = Experiment(tuned, callbacks=lambda: [keep]).run(tmp_path / "tuned")
    start, after, end = states
    assert np.array_equal(start["layers.0.weight"], after["layers.0.weight"])
    assert np.abs(end["layers.0.weight"] - after["layers.0.weight"]).max() > 0
    assert 0 < np.abs(after["layers.1.weight"] - start["layers.1.weight"]).max() < 0.1
    optimizer = result.settings.optimizer_settings
    assert (result.settings.layer_decay, optimizer["lr"]) == (0.5, 0.05)
    file.unlink()
    again = Experiment(tmp_path / "tuned").run(tmp_path / "tuned", resume=True)
    assert np.array_equal(
        again.network.neutral_state()["layers.1.bias"], end["layers.1.bias"]
    )
    with pytest.raises(WeightFileMissing, match="first"):
        Experiment(tuned).run(tmp_path / "other")


@pytest.mark.parametrize("name", ["freeze", "groups"])
def test_a_pattern_of_no_weight_is_refused_before_a_folder_is_made(name, tmp_path):
    wrong = {"lairs.*": 1 if name == "freeze" else {"lr": 0.1}}
    experiment = Experiment({"network": "mlp", name: wrong})
    with pytest.raises(UnknownName, match=rf"{name}: no weight matches 'lairs\.\*'"):
        experiment.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
