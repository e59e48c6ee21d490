"""What the benchmarks make of their figures, and how they go without a GPU."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

from benchmarks import gpu, growth
from benchmarks.by_hand import jax_convnext, jax_mixer, jax_swin
from benchmarks.by_hand.jax_weights import take_over
from deliralike import backends, compare, zoo


def figures(power, bytes_power=1):
    """What growth measures where time and memory grow with a power of the size."""
    sizes = (10, 100, 500, 1000, 2000)
    return {
        "torch": {
            size: {"build, torch": (1e-5 * size**power, 2**12 * size**bytes_power)}
            for size in sizes
        }
    }


@pytest.mark.parametrize(("power", "good"), [(1, True), (1.05, True), (1.3, False), (2, False)])
def test_growth_finds_the_power_with_which_time_grows(power, good):
    time, memory = growth.slopes(figures(power))
    assert time.ratio == pytest.approx(power)
    assert (time.low, time.high) == pytest.approx((power, power))
    assert time.good is good
    assert memory.ratio == pytest.approx(1)
    assert (time.theirs, time.ours) == pytest.approx((1e-5 * 100**power, 1e-5 * 2000**power))


def test_growth_judges_no_memory_below_a_megabyte():
    time_alone = growth.slopes(figures(1, bytes_power=0))
    assert [ratio.name for ratio in time_alone] == ["build, torch: time"]


def test_a_comparison_asks_for_all_parameters_as_often_for_many_layers_as_for_few(monkeypatch):
    asked = []
    make = growth.Chain.on("torch")
    kind = type(make(1))
    original = kind.neutral_slots

    def counted(self):
        asked[-1] += 1
        return original(self)

    monkeypatch.setattr(kind, "neutral_slots", counted)
    batch = growth.np.ones((3, growth.WIDTH), "f4"), growth.np.arange(3)
    for depth in (3, 6):
        asked.append(0)
        networks = make(depth), make(depth)
        assert compare(*networks, batch, levels=("L0", "L1", "L4")).proved
    assert 0 < asked[0] == asked[1]


@pytest.fixture
def hosts_only(monkeypatch):
    """No backend finds another device than the host."""
    for name, host in (("torch", "cpu"), ("chainer", "@numpy"), ("jax", "cpu")):
        monkeypatch.setattr(type(backends.get(name)), "devices", lambda _, host=host: [host])


def test_without_a_gpu_the_command_says_so_names_every_part_and_writes_nothing(
    hosts_only, tmp_path, capsys
):
    assert gpu.main(["--out", str(tmp_path / "gpu")]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "no gpu here: nothing was measured, nothing written"
    assert [line.split(": ")[1] for line in others] == list(gpu.PARTS)
    assert "not run: training steps on Chainer: chainer has no gpu here, only @numpy" in others
    assert not list(tmp_path.iterdir())


def test_on_the_host_the_same_parts_run_and_are_written_twice(hosts_only, tmp_path, capsys):
    parts = ["training steps on PyTorch", "transfers from pinned memory", "tests that need a GPU"]
    words = [word for part in parts for word in ("--part", part)]
    assert gpu.main(["--device", "cpu", "--out", str(tmp_path / "gpu"), *words]) == 0
    written = (tmp_path / "gpu.md").read_text()
    assert capsys.readouterr().out == written
    content = json.loads((tmp_path / "gpu.json").read_text())
    names = [ratio["name"] for part in parts[:2] for ratio in content["ratios"][part]]
    assert names[0] == "resnet18, torch, batch 4"
    assert len(names) == 3
    for name in names:
        assert f"| {name} | " in written
    assert content["not run"] == {"tests that need a GPU": "they need a GPU"}


def test_a_speed_is_the_inverse_of_a_ratio_of_times():
    ratio = gpu.Ratio("net", 0.010, 0.008, 1.25, 1.0, 2.0, limit=1 / gpu.GOAL)
    table = gpu.table({"part": [ratio]}, {"other": "no device"}, gpu.PLANS["gpu"])
    assert "| net | 10.00 | 8.00 | 0.800 (0.500 to 1.000) | 0.99 |" in table
    assert "not run: other: no device" in table


MIXER = {"embed_dim": 16, "num_blocks": 2, "image_size": 48}
CONVNEXT = {"layers": (2, 1), "widths": (8, 16)}
SWIN = {"depths": (2, 2), "embed_dim": 12, "num_heads": (2, 4)}


@pytest.mark.parametrize(
    ("ours", "settings", "theirs", "sides", "size"),
    [
        ("mixer_b16_224", MIXER, jax_mixer.Mixer, {"side": 48, "width": 16, "depth": 2}, 48),
        ("convnext_tiny", CONVNEXT, jax_convnext.ConvNeXt, {"depths": (2, 1), "width": 8}, 40),
        (
            "swin_t",
            SWIN,
            jax_swin.Swin,
            {"size": 14, "depths": (2, 2), "width": 12, "heads": 2},
            56,
        ),
    ],
)
def test_networks_by_hand_are_those_of_the_zoo(ours, settings, theirs, sides, size):
    rng = np.random.default_rng(0)
    network = zoo.build(ours, backend="torch", num_classes=5, **settings).eval()
    state = network.neutral_state()
    parameters = {}
    for name, slot in network.neutral_slots().items():
        if slot.is_parameter:
            parameters[name] = rng.normal(size=slot.shape).astype("f4")
    network.load_neutral_state(state | parameters)
    peer = theirs(nnx.Rngs(0), classes=5, **sides)
    take_over(peer, parameters)
    images = rng.normal(size=(2, 3, size, size)).astype("f4")
    with network.backend.evaluating():
        wanted = network.backend.numpy(network(network.backend.prepare(images, network)))
    scores = nnx.jit(theirs.__call__)(peer, images.transpose(0, 2, 3, 1))
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-5)


def test_shifted_products_have_the_gradients_of_jaxs_own_depthwise_convolution():
    rng = np.random.default_rng(0)
    x, pull = (rng.normal(size=(2, 9, 8, 5)) for _ in range(2))
    shifted = jax_convnext.Depthwise(5, nnx.Rngs(0))
    plain = jax_convnext.Depthwise(5, nnx.Rngs(0), plain=True)

    def gradients(layer):
        graph, state = nnx.split(layer)
        y, backward = jax.vjp(lambda state, x: nnx.merge(graph, state)(x), state, x)
        return y, *backward(pull.astype(y.dtype))

    same = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    jax.tree.map(same, gradients(shifted), gradients(plain))
