"""Sliding-window inference against MONAI's, on every backend."""

import numpy as np
import pytest
import torch

from deliralike import Network, backends
from deliralike.errors import ArgumentError, BatchError, SettingError, StructureError
from deliralike.inference import SlidingWindowInferer, sliding_window_inference
from tests.references import Later

monai_inference = Later("monai.inferers.sliding_window_inference")
# Importing MONAI takes seconds: one process does for all.
pytestmark = pytest.mark.xdist_group("monai")
BACKENDS = ["torch", "chainer", "jax"]


class Segmenter(Network):
    """Outputs that depend on the place within the window, since convolutions pad with zeros."""

    def __init__(self, dims):
        super().__init__()
        layer = getattr(self.nn, f"Conv{dims}d")
        self.conv = layer(2, 3, 3, padding=1)
        self.norm = getattr(self.nn, f"BatchNorm{dims}d")(3)

    def forward(self, x):
        return self.nn.sigmoid(self.norm(self.conv(x)))


class Nested(Segmenter):
    """Several outputs, one of them at half the resolution."""

    def forward(self, x):
        full = super().forward(x)
        return {"full": full, "half": (self.nn.max_pool2d(full, 2),)}


def network(backend, dims=2, kind=Segmenter):
    return kind.on(backend, seed=1, dtype="float64")(dims)


def picture(*size, samples=2, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, 2, *size))


def monais(inputs, predictor, **settings):
    """MONAI's outputs in float64 of the network on PyTorch, in evaluation mode."""
    predictor = predictor.eval()
    with torch.no_grad():
        return monai_inference(
            torch.from_numpy(inputs), predictor=predictor, **settings
        )


CASES = {
    "quarter": ((19, 13), {"roi_size": (7, 5), "sw_batch_size": 4}),
    "no overlap": ((19, 13), {"roi_size": 7, "sw_batch_size": 3, "overlap": 0.0}),
    "by axis": (
        (19, 13),
        {"roi_size": (8, 5), "sw_batch_size": 1, "overlap": (0.6, 0.0)},
    ),
    "whole axis": (
        (9, 13),
        {"roi_size": (None, 5), "sw_batch_size": 2, "overlap": 0.9},
    ),
    "gaussian": (
        (19, 13),
        {"roi_size": (9, 5), "sw_batch_size": 4, "mode": "gaussian"},
    ),
    "gaussian by axis": (
        (19, 13),
        {
            "roi_size": 7,
            "sw_batch_size": 5,
            "mode": "gaussian",
            "sigma_scale": (0.25, 0.125),
        },
    ),
    "smaller": ((5, 13), {"roi_size": (8, 7), "sw_batch_size": 4}),
    "smaller on all axes": ((3, 4), {"roi_size": 8, "sw_batch_size": 4}),
    "volume": (
        (9, 7, 11),
        {"roi_size": (5, 8, 7), "sw_batch_size": 3, "overlap": 0.5, "mode": "gaussian"},
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_monai(case, backend):
    size, settings = CASES[case]
    inputs = picture(*size)
    wanted = monais(inputs, network("torch", len(size)), **settings)
    found = sliding_window_inference(
        inputs, predictor=network(backend, len(size)), **settings
    )
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nests_and_coarser_outputs_come_back_as_the_network_gives_them(backend):
    inputs, settings = (
        picture(18, 14),
        {"roi_size": (8, 6), "sw_batch_size": 4, "overlap": 0.5},
    )
    found = sliding_window_inference(
        inputs, predictor=network(backend, kind=Nested), mode="gaussian", **settings
    )
    reference = network("torch", kind=Nested)
    for key, pick in (
        ("full", lambda out: out["full"]),
        ("half", lambda out: out["half"][0]),
    ):
        wanted = monais(
            inputs,
            torch.nn.Sequential(reference, Pick(pick)),
            mode="gaussian",
            **settings,
        )
        np.testing.assert_allclose(pick(found), wanted.numpy(), rtol=0, atol=1e-10)


def test_a_function_may_give_its_outputs_as_a_list():
    inputs = picture(18, 14)
    first, second = sliding_window_inference(inputs, 8, 4, lambda x: [x, 2 * x])
    np.testing.assert_allclose(first, inputs, rtol=1e-6)
    np.testing.assert_allclose(second, 2 * inputs, rtol=1e-6)


class Pick(torch.nn.Module):
    def __init__(self, pick):
        super().__init__()
        self.forward = pick


def test_jax_compiles_one_program_for_all_windows_of_all_pictures():
    traced = []

    class Counted(Segmenter):
        def forward(self, x):
            traced.append(x.shape)
            return super().forward(x)

    net = network("jax", kind=Counted)
    for size in ((19, 13), (11, 23)):
        sliding_window_inference(picture(*size), (7, 5), 4, net)
    assert traced == [(4, 2, 7, 5)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_network_is_as_before_and_native_arrays_and_several_inputs_are_taken(
    backend,
):
    class Sum(Segmenter):
        def forward(self, x, y):
            return super().forward(x) + y[:, :1]

    net = network(backend, kind=Sum)
    before = net.neutral_state()
    first, second = picture(19, 13), picture(19, 13, seed=1)
    native = tuple(map(backends.get(backend).array, (first, second)))
    if backend == "torch":
        native[0].requires_grad_()  # which NumPy alone would not read
    found = sliding_window_inference(native, 7, 4, net, overlap=0.0)
    alone = sliding_window_inference(first, 7, 4, network(backend), overlap=0.0)
    moved = sliding_window_inference(
        second[:, :1], 7, 4, lambda windows: windows, overlap=0.0
    )
    assert net.training
    assert all(
        np.array_equal(before[name], array)
        for name, array in net.neutral_state().items()
    )
    assert found.shape == alone.shape
    np.testing.assert_allclose(found[:, :1] - alone[:, :1], moved, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"roi_size": (4, 4, 4)},
            SettingError,
            r"roi_size=\(4, 4, 4\) has 3 values, .* 2 axes",
        ),
        ({"overlap": 1.0}, SettingError, "from 0 up and below 1, not 1.0"),
        (
            {"mode": "gauss"},
            SettingError,
            "mode 'gauss' is unknown. Did you mean 'gaussian'?",
        ),
        (
            {"mode": "gaussian", "sigma_scale": 0.0},
            SettingError,
            "a fraction above 0, not 0.0",
        ),
        ({"sw_batch_size": 0}, SettingError, "at least 1, not 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        SlidingWindowInferer(**{"roi_size": (4, 4), **settings})(
            picture(9, 9), lambda x: x
        )


def test_pictures_and_outputs_that_do_not_fit_are_refused():
    infer = SlidingWindowInferer((4, 4))
    with pytest.raises(BatchError, match=r"not an array of shape \(9, 9\)"):
        infer(np.zeros((9, 9)), lambda x: x)
    with pytest.raises(BatchError, match=r"\(2, 2, 9, 9\) and \(2, 2, 9, 8\) do not"):
        infer((picture(9, 9), picture(9, 8)), lambda x, y: x)
    with pytest.raises(
        BatchError, match=r"output\['a'\] of a window of \(4, 4\) must be .*\(1, 2\)"
    ):
        infer(picture(9, 9), lambda x: {"a": x.mean(axis=(2, 3))})
    with pytest.raises(
        ArgumentError, match="from a network or a function of arrays, not from 3"
    ):
        infer(picture(9, 9), 3)
    outputs = iter([{"a": np.zeros((1, 1, 4, 4))}, {"b": np.zeros((1, 1, 4, 4))}])
    with pytest.raises(StructureError, match="outputs of different structures"):
        infer(picture(9, 9), lambda x: next(outputs))


@pytest.mark.parametrize(
    ("setting", "value"), [("roi_size", 2.5), ("sw_batch_size", "4"), ("overlap", None)]
)
def test_a_setting_of_another_type_is_named(setting, value):
    with pytest.raises(SettingError, match=f"{setting}={value!r} must be "):
        SlidingWindowInferer(**{"roi_size": 5, setting: value})
