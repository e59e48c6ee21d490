"""What the benchmarks make of their figures, and how they go without a GPU."""

import io
import json
import subprocess
import sys
from functools import partial

import jax
import numpy as np
import pytest
from flax import nnx

from benchmarks import gpu, growth
from benchmarks.by_hand import jax_convnext, jax_mixer, jax_swin
from benchmarks.by_hand.jax_weights import take_over
from benchmarks.gpu_steps import Entry
from deliralike import compare, zoo


def figures(power, bytes_power=1):
    """What growth measures where time and memory grow with a power of the size."""
    sizes = (10, 100, 500, 1000, 2000)
    return {
        "torch": {
            size: {"build, torch": (1e-5 * size**power, 2**12 * size**bytes_power)}
            for size in sizes
        }
    }


def test_growth_judges_no_memory_below_a_megabyte():
    time_alone = growth.slopes(figures(1, bytes_power=0))
    assert [ratio.name for ratio in time_alone] == ["build, torch: time"]


def test_a_comparison_asks_for_all_parameters_as_often_for_many_layers_as_for_few(
    monkeypatch,
):
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


READY = """print('{"ready": true}', flush=True); input()\n"""
PROGRAMS = {
    "compares": """print('{"equal": true}')""",
    "crashes": "print('no JSON', flush=True)\nimport os; os.abort()",
    "hangs": "import time; time.sleep(60)",
    "measures": READY + """print('{"time": 1}')""",
    "measures too": READY + """print('{"time": 2}')""",
    "hangs while it measures": READY + "import time; time.sleep(60)",
}


def test_a_step_that_crashes_or_hangs_stops_no_other_and_times_are_taken_in_turn(
    monkeypatch, capsys
):
    def entry(name):
        return Entry("", "", 0.8, is_timed="measure" in name, timing=0.5)

    monkeypatch.setattr(gpu, "STEPS", {name: entry(name) for name in PROGRAMS})
    monkeypatch.setattr(gpu, "EACH", 1.0)
    monkeypatch.setattr(
        gpu.Runner, "command", lambda _, name: [sys.executable, "-Sc", PROGRAMS[name]]
    )
    lines = io.StringIO()
    runner = gpu.Runner("cpu", lines, subprocess.DEVNULL, 8.0, None)
    runner.run(list(PROGRAMS), jobs=3)
    found = {
        name: [{**each, "seconds": 0} for each in runner.records[name]]
        for name in PROGRAMS
    }
    done, stopped = (
        {"status": "done", "exit": 0},
        {"status": "stopped at its time limit"},
    )
    assert found == {
        "compares": [{"equal": True, "seconds": 0}, {**done, "seconds": 0}],
        "crashes": [
            {"printed": "no JSON", "seconds": 0},
            {"status": "failed", "exit": -6, "seconds": 0},
        ],
        "hangs": [{**stopped, "seconds": 0}],
        "measures": [{"time": 1, "seconds": 0}, {**done, "seconds": 0}],
        "measures too": [{"time": 2, "seconds": 0}, {**done, "seconds": 0}],
        "hangs while it measures": [{**stopped, "seconds": 0}],
    }
    written = [json.loads(line)["step"] for line in lines.getvalue().splitlines()]
    assert written.index("measures") > written.index("hangs")
    assert capsys.readouterr().out.count("\n") == len(written)


MIXER = {"embed_dim": 16, "num_blocks": 2, "image_size": 48}
CONVNEXT = {"layers": (2, 1), "widths": (8, 16)}
SWIN = {"depths": (2, 2), "embed_dim": 12, "num_heads": (2, 4)}


@pytest.mark.parametrize(
    ("ours", "settings", "theirs", "sides", "size"),
    [
        (
            "mixer_b16_224",
            MIXER,
            jax_mixer.Mixer,
            {"side": 48, "width": 16, "depth": 2},
            48,
        ),
        (
            "convnext_tiny",
            CONVNEXT,
            jax_convnext.ConvNeXt,
            {"depths": (2, 1), "width": 8},
            40,
        ),
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
        wanted = network.backend.numpy(
            network(network.backend.prepare(images, network))
        )
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
