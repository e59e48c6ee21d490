"""Exports that run without this package: TorchScript, ONNX and jax.export, for any batch."""

from itertools import product

import numpy as np
import pytest
import torch

from deliralike import Network
from tests.zoo.case import by_path, close
from tests.zoo.cases import CASES

IN_ONNX = {"lstm_classifier", "gpt2", "resnet8"}
IN_JAX = {"mlp", "gpt2"}
OF_TOKENS = ["bert_tiny classifier", "gpt2", "qwen3_0_6b", "t5_small"]
# With sizes that the tracer gives as arrays, and with what it would keep of the batch that it saw.
TRACED = sorted(
    IN_ONNX
    | {"vit_b_16", "t5_small", "swin_t"}
    | {"mlp", "nnunet", "encoder_unet", "swin_unetr", "samvit_base_patch16"}
)

# TorchDynamo looks at each tensor that it meets.
LOOKED_AT = "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"


def of_size(inputs, size):
    """A batch of another size."""
    return tuple(np.concatenate([x, x])[:size] for x in inputs)


def expected(network, inputs):
    outputs = network(*network.backend.prepare(inputs, network))
    return list(by_path(outputs, network.backend.numpy).values())


def by_onnx(network, inputs, others, path):
    """The outputs under onnxruntime for other inputs than those of the export."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    native = tuple(torch.from_numpy(x) for x in inputs)
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in native)
    with (
        torch.no_grad()
    ):  # PyTorch warns of gradients in its own loop over an LSTM's steps
        torch.onnx.export(
            network, native, path, dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    session = runtime.InferenceSession(path)
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, dict(zip(names, others, strict=True)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings(LOOKED_AT)
@pytest.mark.filterwarnings("ignore:# The axis name.*will not be used:UserWarning")
@pytest.mark.parametrize("label", sorted(IN_ONNX))
def test_onnx_gives_the_outputs_of_the_network(label, tmp_path):
    case = CASES[label]
    network = case.build("torch", dtype="float32", seed=3).eval()
    inputs = case.inputs("float32")
    others = of_size(inputs, 3)
    came = by_onnx(network, inputs, others, tmp_path / "network.onnx")
    for index, leaf in enumerate(expected(network, others)):
        close(came[index], leaf, 1e-5, name=f"output {index}")


class Sorting(Network):
    def forward(self, x):
        indices = self.nn.argsort(x, -1, descending=True)
        return indices, *self.nn.topk(x, 2, largest=False), *self.nn.median(x, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_onnx_sorts_and_keeps_the_order_of_equal_elements(tmp_path):
    others = np.array([[1, 3, 3, 2, 0], [5, 4, 4, 9, 4], [7, 7, 7, 7, 7]], np.float32)
    network = Sorting.on("torch")().eval()
    came = by_onnx(network, [others[:2]], [others], tmp_path / "network.onnx")
    order = np.argsort(others, 1, kind="stable")
    values = np.sort(others, 1)
    falling = np.argsort(-others, 1, kind="stable")
    wanted = [falling, values[:, :2], order[:, :2], values[:, 2], order[:, 2]]
    for found, each in zip(came, wanted, strict=True):
        np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("label", sorted(IN_JAX))
def test_jax_exports_a_program_for_batches_of_any_size(label):
    jax = pytest.importorskip("jax")
    case = CASES[label]
    network = case.build("jax", dtype="float32").eval()
    (batch,) = jax.export.symbolic_shape("batch")
    inputs = case.inputs("float32")
    native = [network.backend.array(x) for x in inputs]
    specs = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in native]
    exported = jax.export.export(jax.jit(lambda *xs: network(*xs)))(*specs)
    others = of_size(inputs, 3)
    came = exported.call(*(network.backend.array(x) for x in others))
    leaves = list(by_path(came, network.backend.numpy).values())
    for index, leaf in enumerate(expected(network, others)):
        close(leaves[index], leaf, 1e-5, name=f"output {index}")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("label", TRACED)
def test_a_traced_network_gives_the_outputs_for_another_batch(label):
    case = CASES[label]
    network = case.build("torch", dtype="float64").eval()
    inputs = case.inputs("float64")
    others = of_size(inputs, 3)
    with torch.no_grad():
        traced = torch.jit.trace(
            network, network.backend.prepare(inputs, network), strict=False
        )
        came = traced(*network.backend.prepare(others, network))
    leaves = list(by_path(came, network.backend.numpy).values())
    for index, leaf in enumerate(expected(network, others)):
        close(leaves[index], leaf, 1e-12, name=f"output {index}")


def of_length(inputs, count):
    """The first tokens of sequences, and lengths that they have."""
    return tuple(x[:, :count] if x.ndim == 2 else np.minimum(x, count) for x in inputs)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("label", "way"),
    [
        *product(OF_TOKENS, ["torch.jit.trace", "torch.export"]),
        (
            "lstm_classifier",
            "torch.jit.trace",
        ),  # PyTorch exports an LSTM for one number of steps
    ],
)
def test_a_network_of_tokens_gives_the_outputs_for_another_length(label, way):
    case = CASES[label]
    network = case.build("torch", dtype="float64").eval()
    native = network.backend.prepare(case.inputs("float64"), network)
    others = of_length(case.inputs("float64"), native[0].shape[1] - 2)
    with torch.no_grad():
        if way == "torch.export":
            dynamic = tuple(
                dict.fromkeys(range(x.ndim), torch.export.Dim.DYNAMIC) for x in native
            )
            traced = torch.export.export(
                network, native, dynamic_shapes=dynamic
            ).module()
        else:
            traced = torch.jit.trace(network, native, strict=False, check_trace=False)
        came = traced(*network.backend.prepare(others, network))
    leaves = list(by_path(came, network.backend.numpy).values())
    for index, leaf in enumerate(expected(network, others)):
        close(leaves[index], leaf, 1e-12, name=f"output {index}")
