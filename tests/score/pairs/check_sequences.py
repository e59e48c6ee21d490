"""Check these pairs by themselves: each port is right, each mistake changes something, and each
right variant changes nothing.

Everything is computed in float64 by the frameworks alone: outputs in training and evaluation, the
loss, the sum of each parameter times its gradient, which is the same however weights are laid out,
and the loss after each of a few steps of each optimizer.

Example:
    python -m tests.score.pairs.check_sequences lstm gru
"""

from __future__ import annotations

import copy
import importlib
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from deliralike.backends.chainer.arrays import chainer

HERE = Path(__file__).parent
PAIRS = (
    "lstm",
    "gru",
    "detector",
    "gan",
    "llama_like",
    "fused",
    "tied",
    "training",
    "replicated",
)
STEPS = 6
FOLDED = ("fused",)  # pairs whose parameters are products of others, so gradients are others too


def main(names):
    """Check pairs by name; all of them where none is named."""
    jax.config.update("jax_enable_x64", True)
    chainer.config.dtype = np.dtype("float32")
    complaints = []
    for name in names or PAIRS:
        complaints += check(name)
    print("\n".join(complaints) or "all is as it should be")
    return len(complaints)


def check(name):
    """Return what is wrong with a pair, as sentences."""
    reference = importlib.import_module(f"tests.score.pairs.{name}.reference")
    edits = importlib.import_module(f"tests.score.pairs.{name}.edits")
    wanted = of_torch(reference)
    if name in FOLDED:
        wanted = {key: wanted[key] for key in ("evaluated", "trained", "loss")}
    complaints = []
    for port in ("jax", "chainer"):
        for case in (None, *edits.RIGHT):
            if case is None or case.port == port:
                label = f"{name} {port} {case.name if case else 'as it is'}"
                try:
                    different = differing(wanted, observed(name, port, case, reference))
                except Exception as error:
                    different = [f"{type(error).__name__}: {error}"]
                if different:
                    complaints.append(f"{label}: {', '.join(different)}")
        for case in (one for one in edits.MISTAKES if one.port == port):
            label = f"{name} {port} {case.name}"
            try:
                found = observed(name, port, case, reference)
            except Exception as error:
                complaints.append(f"{label}: {type(error).__name__}: {error}")
                continue
            different = differing(wanted, found)
            print(f"{label}: {', '.join(different) or 'NOTHING'}")
            if not different:
                complaints.append(f"{label}: nothing differs")
            changes = any(each.startswith("evaluated") for each in different)
            if case.effect is not None and case.effect != changes:
                complaints.append(f"{label}: outputs in evaluation: {changes}")
    counts = [len([c for c in edits.MISTAKES if c.port == p]) for p in ("jax", "chainer")]
    right = [len([c for c in edits.RIGHT if c.port == p]) for p in ("jax", "chainer")]
    print(f"{name}: mistakes {counts}, right {right}")
    return complaints


def source(name, port, case):
    """The text of a port, edited."""
    text = (HERE / name / f"{port}.py").read_text()
    for old, new in case.edits if case else ():
        if text.count(old) != 1:
            raise ValueError(f"found {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return text


def observed(name, port, case, reference):
    """What a port gives, as `of_torch`."""
    module = types.ModuleType(f"{name}_{port}")
    exec(compile(source(name, port, case), f"{name}/{port}.py", "exec"), module.__dict__)
    return {"jax": of_flax, "chainer": of_chainer}[port](module, reference)


def differing(wanted, found):
    """Names of what differs."""
    names = []
    for key, value in wanted.items():
        if key not in found and key.startswith("optimizer"):
            continue  # not every port brings all of them
        if key not in found:
            names.append(f"{key} is missing")
        elif key.startswith("sizes"):
            if not any(near(a, b) for a, b in zip(value, found[key], strict=True)):
                names.append(key)
        elif not near(value, found[key]):
            names.append(key)
    return names


def near(wanted, found):
    """Whether each array of one nest is found in the other, as it is or with channels last."""
    mine, theirs = list(leaves(wanted)), list(leaves(found))
    return all(any(alike(a, b) for b in theirs) for a in mine)


def alike(a, b):
    """Whether two arrays are equal to 1e-11, as they are or with channels last."""
    if b.ndim > 2 and a.shape != b.shape:
        b = np.moveaxis(b, -1, 1)
    if a.shape != b.shape:
        return False
    return np.linalg.norm(a - b) <= 1e-11 * max(np.linalg.norm(a), 1e-3)


def leaves(nest):
    """Arrays of a nest of dicts, tuples and lists."""
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (tuple, list)):
        for each in nest:
            yield from leaves(each)
    elif isinstance(nest, torch.Tensor):
        yield nest.detach().numpy().astype(np.float64)
    else:
        yield np.asarray(getattr(nest, "array", nest), np.float64)


class Wrapped:
    """What a function that replicates is given."""

    def __init__(self, native):
        self.native = native
        self.backend = self

    def wrap(self, native):
        return native


def in_replicas(found):
    """The same under names of their own."""
    return {f"{name} in replicas": value for name, value in found.items()}


def sizes(gradients):
    """Sums of sizes of matrices, which two biases for one leave alone, and of everything, which
    stacks leave alone."""
    matrices = [each for each in gradients if each.ndim > 1]
    return [sum(abs(each).sum() for each in some) for some in (matrices, gradients)]


def wide(arrays):
    """Floating arrays in float64."""
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


# PyTorch
# -----------------------------------------------------------------------------


def of_torch(module):
    """Outputs, loss and optimizer steps of the reference."""
    batch = [torch.tensor(each) for each in wide(module.batch())]

    def made():
        return module.network().double()

    def default(network, *batch):
        return torch.nn.functional.cross_entropy(network(*batch[:-1]), batch[-1])

    loss = getattr(module, "loss", default)
    found = {"evaluated": made().eval()(*batch[:-1])}
    network = made().train()
    found["trained"] = network(*batch[:-1])
    network = made().train()
    value = loss(network, *batch)
    value.backward()
    found["loss"] = value
    found["statistics"] = [s for n, s in network.named_buffers() if "running" in n]
    found["gradient"] = sum((p * p.grad).sum() for p in network.parameters() if p.grad is not None)
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    found["sizes of gradients"] = sizes(gradients)
    if "replicas" in getattr(module, "OPTIONS", {}):
        names = ("trained", "loss", "statistics", "gradient", "sizes of gradients")
        found |= {f"{name} in replicas": found[name] for name in names}
    for name, make in getattr(module, "OPTIMIZERS", {}).items():
        network = made().train()
        optimizer, history = make(network), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            value = loss(network, *batch)
            value.backward()
            optimizer.step()
            history.append(value.item())
        found[f"optimizer {name}"] = history
    return found


# flax
# -----------------------------------------------------------------------------


def last(array):
    """A picture with its channels last."""
    return jnp.moveaxis(array, 1, -1) if array.ndim == 4 else array


class Turned:
    """A network that is given channels first."""

    def __init__(self, network):
        self.network = network

    def __call__(self, *inputs):
        return self.network(*(last(x) for x in inputs))

    def __getattr__(self, name):
        return getattr(self.network, name)


def of_flax(module, reference):
    """The same of a port to flax."""
    batch = [jnp.asarray(each) for each in wide(reference.batch())]

    def made():
        network = module.network(reference.network())
        state = nnx.state(network)
        nnx.update(network, jax.tree.map(doubled, state))
        for _, node in nnx.iter_graph(network):
            for name in ("dtype", "param_dtype"):
                if isinstance(node, nnx.Module) and getattr(node, name, None) == jnp.float32:
                    setattr(node, name, jnp.float64)
        return network

    def default(network, *batch):
        rows = jax.nn.log_softmax(network(*batch[:-1]))
        return -jnp.mean(rows[jnp.arange(len(rows)), batch[-1]])

    def loss(network, *batch):
        return getattr(module, "loss", default)(Turned(network), *batch)

    network = made()
    network.eval()
    found = {"evaluated": Turned(network)(*batch[:-1])}

    def step(network):
        network.train()
        output = Turned(nnx.clone(network))(*batch[:-1])
        value, gradients = nnx.value_and_grad(loss)(network, *batch)
        parameters = nnx.state(network, nnx.Param)
        products = jax.tree.map(lambda p, g: (p * g).sum(), parameters, gradients)
        return {
            "trained": output,
            "loss": value,
            "statistics": jax.tree.leaves(nnx.state(network, nnx.BatchStat)),
            "gradient": sum(jax.tree.leaves(products)),
            "sizes of gradients": sizes(jax.tree.leaves(gradients)),
        }

    found |= step(made())
    if hasattr(module, "replicate"):
        found |= in_replicas(step(module.replicate(Wrapped(made()), 2)))
    for name, make in getattr(module, "OPTIMIZERS", {}).items():
        network = made()
        network.train()
        optimizer, history = make(network), []
        state = optimizer.init(nnx.state(network, nnx.Param))
        for _ in range(STEPS):
            value, gradients = nnx.value_and_grad(loss)(network, *batch)
            old = nnx.state(network, nnx.Param)
            moves, state = optimizer.update(gradients, state, old)
            nnx.update(network, jax.tree.map(jnp.add, old, moves))
            history.append(float(value))
        found[f"optimizer {name}"] = history
    return found


def doubled(value):
    """A floating array in float64."""
    if hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating):
        return value.astype(jnp.float64)
    return value


# Chainer
# -----------------------------------------------------------------------------


def of_chainer(module, reference):
    """The same of a port to Chainer."""
    functions = chainer.functions
    batch = wide(reference.batch())

    def made():
        network = module.network(reference.network())
        for parameter in network.params():
            parameter.array = parameter.array.astype(np.float64)
        for link in network.links():
            for name in getattr(link, "_persistent", ()):
                value = getattr(link, name)
                if isinstance(value, np.ndarray) and value.dtype == np.float32:
                    setattr(link, name, value.astype(np.float64))
            if getattr(link, "_highprec_dtype", None) is not None:
                link._highprec_dtype = np.dtype("float64")
        return network

    def default(network, *batch):
        return functions.softmax_cross_entropy(network(*batch[:-1]), batch[-1])

    loss = getattr(module, "loss", default)

    def step(network):
        output = copy.deepcopy(network)(*batch[:-1])
        network.cleargrads()
        value = loss(network, *batch)
        value.backward()
        parameters = [p for p in network.params() if p.grad is not None]
        return {
            "trained": output,
            "loss": value,
            "statistics": [
                getattr(link, name)
                for link in network.links()
                for name in ("avg_mean", "avg_var")
                if hasattr(link, name)
            ],
            "gradient": sum((p.array * p.grad).sum() for p in parameters),
            "sizes of gradients": sizes([p.grad for p in parameters]),
        }

    with chainer.using_config("dtype", np.dtype("float64")):
        with chainer.using_config("train", False):
            found = {"evaluated": made()(*batch[:-1])}
        with chainer.using_config("train", True):
            found |= step(made())
            if hasattr(module, "replicate"):
                found |= in_replicas(step(module.replicate(Wrapped(made()), 2)))
            for name, make in getattr(module, "OPTIMIZERS", {}).items():
                network = made()
                optimizer, history = make(network), []
                for _ in range(STEPS):
                    network.cleargrads()
                    value = loss(network, *batch)
                    value.backward()
                    optimizer.update()
                    history.append(float(value.array))
                found[f"optimizer {name}"] = history
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
