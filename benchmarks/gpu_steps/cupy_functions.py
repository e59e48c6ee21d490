"""Chainer on CuPy: what does not import, and functions, links and optimizers against NumPy."""

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_steps import Record, device_of
from deliralike import backends

IMAGE, ROWS, SIGNAL, VOLUME = (2, 4, 7, 6), (5, 6), (2, 4, 9), (2, 4, 5, 6, 4)
LIMITS = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2}

Function = Callable[..., Any]


def functions(kind: str, dtype: str) -> Iterator[Record]:
    """Say what does not import, fails or differs; then how much was tried."""
    backend = backends.get("chainer")
    device = device_of(backend, kind)
    import chainer

    warnings.simplefilter("ignore")
    if dtype == "float32":
        yield from _imports(chainer)
    right = 0
    tried = list(_tried(chainer, dtype, device))
    for number, (name, error_of) in enumerate(tried, start=1):
        try:
            error = error_of()
        except Exception as problem:  # noqa: BLE001 (what fails is the result)
            message = f"{type(problem).__name__}: {problem}"
            yield {"function": name, "failed": message[:600]}
            continue
        if error <= LIMITS[dtype]:
            right += 1
        else:
            yield {"function": name, "differs by": error}
        if number % 30 == 0:
            yield {"tried": number, "right": right}
    yield {"tried": len(tried), "right": right}


def _tried(
    chainer: Any, dtype: str, device: str
) -> Iterator[tuple[str, Callable[[], float]]]:
    """Return what is tried in a type: names, and functions that return an error."""
    for name, function, shapes in _functions(chainer):
        if dtype == "float32" or name not in _SINGLE:
            yield name, partial(_error, chainer, function, shapes, dtype, device)
    if dtype == "float64":  # MSVAG divides by differences of nearly equal numbers
        for name in _OPTIMIZERS:
            yield name, partial(_optimizer_error, chainer, name, device)


def _imports(chainer: Any) -> Iterator[Record]:
    count = 0
    with_onnx = ("chainer.exporters", "onnx_chainer")
    for module in pkgutil.walk_packages(
        chainer.__path__, "chainer.", onerror=lambda _: None
    ):
        if module.name.startswith(with_onnx):
            continue
        count += 1
        try:
            importlib.import_module(module.name)
        except Exception as problem:  # noqa: BLE001 (what fails is the result)
            yield {
                "module": module.name,
                "failed": f"{type(problem).__name__}: {problem}"[:300],
            }
    yield {"modules": count}


def _error(
    chainer: Any, function: Function, shapes: Any, dtype: str, device: str
) -> float:
    """Return the largest difference of outputs and gradients, by the largest element."""
    host, found = (
        _outputs(chainer, function, shapes, dtype, each) for each in ("@numpy", device)
    )
    errors = [
        float(np.abs(f.astype(np.float64) - h).max() / max(1.0, np.abs(h).max()))
        for f, h in zip(found, host, strict=True)
        if h.size
    ]
    return max(errors)


def _outputs(
    chainer: Any, function: Function, shapes: Any, dtype: str, device: str
) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    place = chainer.get_device(device)
    values = [rng.uniform(0.2, 0.9, shape).astype(dtype) for shape in shapes]
    with chainer.using_device(place), chainer.using_config("dtype", np.dtype(dtype)):
        np.random.seed(0)
        inputs = [chainer.Variable(place.send(value)) for value in values]
        y = function(*inputs)
        y = y[0] if isinstance(y, tuple | list) else y
        ramp = np.linspace(0.5, 1.0, max(y.size, 1)).reshape(y.shape).astype(y.dtype)
        y.grad = place.send(ramp)
        y.backward()
        results = [y.array, *(x.grad for x in inputs if x.grad is not None)]
    return [
        chainer.get_device("@numpy").send(each).astype(np.float64) for each in results
    ]


def _link(chainer: Any, make: Callable[[], Any]) -> Function:
    """Return a function that makes a link, of the same numbers on each device, and calls it."""

    def call(x: Any) -> Any:
        np.random.seed(1)
        with chainer.using_device("@numpy"):
            link = make()
        link.to_device(x.device)
        return link(x)

    return call


_NAMES = (
    "absolute", "arctan", "arcsin", "arccos", "ceil", "floor", "cos", "sin", "tan", "cosh", "sinh",
    "tanh", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "square",
    "erf", "erfc", "erfinv", "erfcinv", "ndtr", "ndtri", "log_ndtr", "lgamma", "digamma", "relu",
    "relu6", "elu", "selu", "leaky_relu", "sigmoid", "hard_sigmoid", "softplus", "clipped_relu",
    "crelu", "log_softmax", "softmax", "sum", "prod", "mean", "max", "min", "cumsum", "cumprod",
    "logsumexp", "sign", "fix", "flatten", "transpose", "squeeze",
)  # fmt: skip


def _functions(chainer: Any) -> Iterator[tuple[str, Function, tuple]]:
    """Return names, functions, and the shapes of their arguments."""
    F, L = chainer.functions, chainer.links
    for name in _NAMES:
        yield name, getattr(F, name), (IMAGE,)
    labels = np.array([0, 3, 5, 1, 2], np.int32)

    def on(x: Any, values: np.ndarray) -> Any:
        return x.device.send(values)

    table: dict[str, tuple[Function, tuple]] = {
        "swish": (F.swish, (IMAGE, IMAGE[1:])),
        "maxout": (lambda x: F.maxout(x, 2), (IMAGE,)),
        "prelu": (F.prelu, (IMAGE, (4,))),
        "flip": (lambda x: F.flip(x, 2), (IMAGE,)),
        "add": (lambda x, y: x + y, (IMAGE, IMAGE)),
        "multiply by a number": (lambda x: 3 * x / 2 - 1, (IMAGE,)),
        "power": (lambda x, y: x**y, (IMAGE, IMAGE)),
        "floor division": (lambda x, y: x // y, (IMAGE, IMAGE)),
        "matmul": (F.matmul, ((2, 3, 4), (2, 4, 5))),
        "tensordot": (lambda x, y: F.tensordot(x, y, 1), ((3, 4), (4, 5))),
        "einsum": (lambda x, y: F.einsum("abc,adc->abd", x, y), ((2, 3, 4), (2, 5, 4))),
        "linear": (F.linear, (ROWS, (3, 6), (3,))),
        "bilinear": (F.bilinear, (ROWS, (5, 4), (6, 4, 3))),
        "convolution_2d": (
            lambda x, w, b: F.convolution_2d(x, w, b, 2, 1),
            (IMAGE, (3, 4, 3, 3), (3,)),
        ),
        "convolution_2d, groups": (
            lambda x, w: F.convolution_2d(x, w, None, 1, 1, groups=2),
            (IMAGE, (6, 2, 3, 3)),
        ),
        "convolution_2d, dilated": (
            lambda x, w: F.convolution_2d(x, w, None, 1, 2, dilate=2),
            (IMAGE, (6, 4, 3, 3)),
        ),
        "convolution_1d": (
            lambda x, w: F.convolution_nd(x, w, None, 1, 1),
            (SIGNAL, (3, 4, 3)),
        ),
        "convolution_3d": (
            lambda x, w, b: F.convolution_nd(x, w, b, 1, 1),
            (VOLUME, (3, 4, 3, 3, 3), (3,)),
        ),
        "deconvolution_2d": (
            lambda x, w, b: F.deconvolution_2d(x, w, b, 2, 1),
            (IMAGE, (4, 3, 3, 3), (3,)),
        ),
        "deconvolution_3d": (
            lambda x, w: F.deconvolution_nd(x, w, None, 2, 1),
            (VOLUME, (4, 3, 3, 3, 3)),
        ),
        "depthwise_convolution_2d": (F.depthwise_convolution_2d, (IMAGE, (2, 4, 3, 3))),
        "local_convolution_2d": (F.local_convolution_2d, (IMAGE, (3, 5, 4, 4, 3, 3))),
        "max_pooling_2d": (lambda x: F.max_pooling_2d(x, 3, 2, 1), (IMAGE,)),
        "max_pooling_3d": (lambda x: F.max_pooling_nd(x, 2), (VOLUME,)),
        "average_pooling_2d": (lambda x: F.average_pooling_2d(x, 3, 2, 1), (IMAGE,)),
        "average_pooling_3d": (lambda x: F.average_pooling_nd(x, 2), (VOLUME,)),
        "unpooling_2d": (lambda x: F.unpooling_2d(x, 2, cover_all=False), (IMAGE,)),
        "spatial_pyramid_pooling_2d": (
            lambda x: F.spatial_pyramid_pooling_2d(x, 2, pooling="max"),
            (IMAGE,),
        ),
        "roi_max_align_2d": (
            lambda x: F.roi_max_align_2d(
                x,
                on(x, np.array([[0, 0, 4, 5], [1, 1, 5, 4]], x.dtype)),
                on(x, np.array([0, 1], np.int32)),
                2,
                1.0,
            ),
            (IMAGE,),
        ),
        "resize_images": (lambda x: F.resize_images(x, (9, 11)), (IMAGE,)),
        "depth2space": (lambda x: F.depth2space(x, 2), (IMAGE,)),
        "im2col": (lambda x: F.im2col(x, 3), (IMAGE,)),
        "pad": (lambda x: F.pad(x, 2, "constant"), (IMAGE,)),
        "pad_sequence": (lambda x, y: F.pad_sequence([x, y]), ((3, 2), (5, 2))),
        "get_item": (lambda x: x[:, 1:3, ::2], (IMAGE,)),
        "get_item by an index": (lambda x: x[on(x, np.array([1, 1, 0]))], (IMAGE,)),
        "select_item": (lambda x: F.select_item(x, on(x, labels)), (ROWS,)),
        "scatter_add": (
            lambda x, y: F.scatter_add(x, on(x, np.array([1, 1, 0])), y),
            (ROWS, (3, 6)),
        ),
        "embed_id": (lambda w: F.embed_id(on(w, labels), w), ((6, 5),)),
        "permutate": (
            lambda x: F.permutate(x, on(x, np.array([4, 2, 0, 1, 3], "i"))),
            (ROWS,),
        ),
        "where": (lambda x, y: F.where(x.array > 0.5, x, y), (IMAGE, IMAGE)),
        "concat": (lambda x, y: F.concat([x, y]), (IMAGE, IMAGE)),
        "stack": (lambda x, y: F.stack([x, y], 1), (IMAGE, IMAGE)),
        "split_axis": (lambda x: F.split_axis(x, 2, 1), (IMAGE,)),
        "tile": (lambda x: F.tile(x, (1, 2, 1, 1)), (IMAGE,)),
        "repeat": (lambda x: F.repeat(x, 2, 1), (IMAGE,)),
        "broadcast_to": (lambda x: F.broadcast_to(x, (3, *ROWS)), (ROWS,)),
        "clip": (lambda x: F.clip(x, 0.3, 0.7), (IMAGE,)),
        "cast": (lambda x: F.cast(x, "float32"), (IMAGE,)),
        "as_strided": (lambda x: F.as_strided(x, (3, 4), (1, 2), 0), ((24,),)),
        "batch_normalization": (F.batch_normalization, (IMAGE, (4,), (4,))),
        "fixed_batch_normalization": (
            F.fixed_batch_normalization,
            (IMAGE, (4,), (4,), (4,), (4,)),
        ),
        "batch_renormalization": (
            lambda x, g, b, m, v: F.batch_renormalization(
                x, g, b, 1.5, 0.5, running_mean=m.array, running_var=v.array
            ),
            (IMAGE, (4,), (4,), (4,), (4,)),
        ),
        "group_normalization": (
            lambda x, g, b: F.group_normalization(x, 2, g, b),
            (IMAGE, (4,), (4,)),
        ),
        "layer_normalization": (F.layer_normalization, (ROWS, (6,), (6,))),
        "local_response_normalization": (F.local_response_normalization, (IMAGE,)),
        "normalize": (F.normalize, (ROWS,)),
        "softmax_cross_entropy": (
            lambda x: F.softmax_cross_entropy(x, on(x, labels)),
            (ROWS,),
        ),
        "sigmoid_cross_entropy": (
            lambda x: F.sigmoid_cross_entropy(x, on(x, np.ones(ROWS, np.int32))),
            (ROWS,),
        ),
        "mean_squared_error": (F.mean_squared_error, (ROWS, ROWS)),
        "mean_absolute_error": (F.mean_absolute_error, (ROWS, ROWS)),
        "huber_loss": (lambda x, y: F.huber_loss(x, y, 0.1), (ROWS, ROWS)),
        "hinge": (lambda x: F.hinge(x, on(x, labels)), (ROWS,)),
        "contrastive": (
            lambda x, y: F.contrastive(x, y, on(x, np.array([0, 1, 1, 0, 1], "i"))),
            (ROWS, ROWS),
        ),
        "triplet": (F.triplet, (ROWS, ROWS, ROWS)),
        "connectionist_temporal_classification": (
            lambda x, y, z: F.connectionist_temporal_classification(
                [x, y, z], on(x, np.array([[1], [2]], "i")), 0
            ),
            ((2, 4), (2, 4), (2, 4)),
        ),
        "gaussian_kl_divergence": (F.gaussian_kl_divergence, (ROWS, ROWS)),
        "det": (F.batch_det, ((2, 3, 3),)),
        "inv": (F.inv, ((3, 3),)),
        "lstm": (F.lstm, ((5, 2), (5, 8))),
        "slstm": (F.slstm, ((5, 2), (5, 2), (5, 8), (5, 8))),
        "tree_lstm": (F.tree_lstm, ((5, 2), (5, 2), (5, 10))),
        "spatial_transformer_grid": (
            lambda x: F.spatial_transformer_grid(x, (4, 5)),
            ((2, 2, 3),),
        ),
        "spatial_transformer_sampler": (
            F.spatial_transformer_sampler,
            (IMAGE, (2, 2, 4, 5)),
        ),
        "Linear": (_link(chainer, lambda: L.Linear(6, 3)), (ROWS,)),
        "Convolution2D": (_link(chainer, lambda: L.Convolution2D(4, 3, 3)), (IMAGE,)),
        "BatchNormalization": (
            _link(chainer, lambda: L.BatchNormalization(4)),
            (IMAGE,),
        ),
        "StatefulGRU": (_link(chainer, lambda: L.StatefulGRU(6, 3)), (ROWS,)),
        "LSTM": (_link(chainer, lambda: L.LSTM(6, 3)), (ROWS,)),
        "NStepLSTM": (
            _link(chainer, lambda: _recurrent(chainer)),
            ((5, 6),),
        ),
        "Inception": (
            _link(chainer, lambda: L.Inception(4, 2, 2, 2, 2, 2, 2)),
            (IMAGE,),
        ),
        "Highway": (_link(chainer, lambda: L.Highway(6)), (ROWS,)),
        "Maxout": (_link(chainer, lambda: L.Maxout(6, 3, 2)), (ROWS,)),
    }
    for name, (function, shapes) in table.items():
        yield name, function, shapes


_SINGLE = ("bilinear", "roi_max_align_2d")  # which take no other type


def _recurrent(chainer: Any) -> Any:
    class Outputs(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.lstm = chainer.links.NStepLSTM(1, 6, 3, 0.0)

        def forward(self, x: Any) -> Any:
            return self.lstm(None, None, [x])[2][0]

    return Outputs()


_OPTIMIZERS = (
    "SGD", "MomentumSGD", "CorrectedMomentumSGD", "NesterovAG", "Adam", "AdamW", "AMSGrad",
    "AdaBound", "AdaGrad", "AdaDelta", "RMSprop", "RMSpropGraves", "SMORMS3", "MSVAG",
)  # fmt: skip


def _optimizer_error(chainer: Any, name: str, device: str) -> float:
    """Return the difference of parameters after three steps on the device and on the host."""
    host, found = (_optimized(chainer, name, each) for each in ("@numpy", device))
    return float(np.abs(host - found).max())


def _optimized(chainer: Any, name: str, device: str) -> np.ndarray:
    np.random.seed(0)
    with chainer.using_config("dtype", np.float64):
        link = chainer.links.Linear(6, 3)
    link.to_device(device)
    optimizer = getattr(chainer.optimizers, name)().setup(link)
    x = chainer.get_device(device).send(np.random.rand(5, 6))
    for _ in range(3):
        link.cleargrads()
        chainer.functions.sum(link(x) ** 2).backward()
        optimizer.update()
    link.to_device("@numpy")
    return link.W.array.copy()
