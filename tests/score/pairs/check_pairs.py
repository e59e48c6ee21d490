"""Whether the pairs are what they claim to be, by plain numbers in float64.

A port is right if its outputs, loss, statistics, and the sums of squares of its gradients and updates
are those of the reference: such sums do not depend on names and layouts. A mistake is one if it changes any of them. Nothing
of the proof is used.

``python -m tests.score.pairs.check_pairs cnn resnet`` prints what is not as it should be.
"""

# ruff: noqa: E501

from __future__ import annotations

import copy
import importlib
import itertools
import sys
import types
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from deliralike.backends.chainer.arrays import chainer

FOLDER = Path(__file__).parent
NEAR = 1e-9  # relative; right ports agree to some 1e-14
STEPS = 3
RANDOM = {"vit"}  # dropout of the framework's own: nothing can be said of training

# The port's layers by those of the reference, where the comparison loads the weights.
NAMES = {
    ("cnn", "chainer"): {
        "conv1": "conv1",
        "bn1": "norm1",
        "conv2": "conv2",
        "bn2": "norm2",
        "fc1": "l1",
        "fc2": "l2",
    },
    ("unet", "chainer"): {
        "up1": "up",
        "reduce": "conv",
        "outc": "classify",
        **{
            f"{a}.double_conv.{i}": f"{b}.{j}"
            for a, b in (
                ("inc", "enc0"),
                ("down1", "enc1"),
                ("down2", "enc2"),
                ("conv1", "dec1"),
                ("conv2", "dec0"),
            )
            for i, j in ((0, 0), (1, 1), (3, 2), (4, 3))
        },
    },
    ("vit", "chainer"): {
        "patch_embed": "patch",
        "norm": "ln",
        "head": "out",
        "cls_token": "token",
        "pos_embed": "position",
        **{
            f"blocks.{i}.{a}": f"layers.{i}.{b}"
            for i in (0, 1)
            for a, b in (
                ("norm1", "ln_1"),
                ("norm2", "ln_2"),
                ("mlp.fc1", "l1"),
                ("mlp.fc2", "l2"),
                ("attn.out_proj", "attention.w_o"),
                ("attn.in_proj 0", "attention.w_q"),
                ("attn.in_proj 1", "attention.w_k"),
                ("attn.in_proj 2", "attention.w_v"),
            )
        },
    },
    ("gpt", "jax"): {
        "wte": "tok",
        "wpe": "pos",
        "ln_f": "norm",
        **{
            f"h.{i}.{a}": f"blocks.{i}.{b}"
            for i in (0, 1)
            for a, b in (
                ("ln_1", "norm_attn"),
                ("ln_2", "norm_mlp"),
                ("attn.c_attn", "qkv"),
                ("attn.c_proj", "out"),
                ("mlp.c_fc", "up"),
                ("mlp.c_proj", "down"),
            )
        },
    },
    ("autoencoder", "jax"): {
        "encoder.0": "encoder.conv1",
        "encoder.2": "encoder.conv2",
        "fc_mu": "encoder.mu",
        "fc_logvar": "encoder.logvar",
        "decoder_input": "decoder.dense",
        "decoder.0": "decoder.up1",
        "decoder.2": "decoder.up2",
    },
    ("convnext_like", "jax"): {
        "stem.0": "stem",
        "stem.1": "stem_ln",
        "downsample.0": "down_ln",
        "downsample.1": "down",
        "norm": "head_ln",
        "head": "head",
        **{
            f"{s}.{a}": f"{t}.{b}"
            for s, t in (("stage1", "body"), ("stage2", "tail"))
            for a, b in (
                ("dwconv", "depthwise"),
                ("norm", "ln"),
                ("pwconv1", "expand"),
                ("pwconv2", "project"),
                ("gamma", "layer_scale"),
            )
        },
    },
    ("convnext_like", "chainer"): {
        "stem.0": "conv0",
        "stem.1": "norm0",
        "downsample.0": "norm1",
        "downsample.1": "conv1",
        "norm": "norm2",
        "head": "fc",
        **{
            f"{s}.{a}": f"{t}.{b}"
            for s, t in (("stage1", "block1"), ("stage2", "block2"))
            for a, b in (
                ("dwconv", "conv"),
                ("norm", "norm"),
                ("pwconv1", "fc1"),
                ("pwconv2", "fc2"),
                ("gamma", "scale.W"),
            )
        },
    },
    ("resnet", "jax"): {
        "conv1": "stem",
        "bn1": "stem_norm",
        "fc": "head",
        "layer2.0.downsample.0": "blocks.2.proj",
        "layer2.0.downsample.1": "blocks.2.proj_norm",
        **{
            f"layer{1 + i // 2}.{i % 2}.{a}{n}": f"blocks.{i}.{b}_{n}"
            for i in range(4)
            for n in (1, 2)
            for a, b in (("conv", "conv"), ("bn", "norm"))
        },
    },
}


def both_heads(names):
    """The autoencoder's two heads in one layer."""
    return linear(
        *(
            torch.cat([getattr(names[head], kind) for head in ("fc_mu", "fc_logvar")])
            for kind in ("weight", "bias")
        )
    )


def columns_last(name):
    """A layer behind a picture that is flattened channels last."""

    def make(names):
        weight = names[name].weight
        return linear(
            weight.unflatten(1, (6, 2, 3)).permute(0, 2, 3, 1).flatten(1), names[name].bias
        )

    return make


def rows_last(names):
    """The layer in front of a picture that was flattened channels last."""
    layer = names["decoder_input"]
    turned = [
        value.unflatten(0, (6, 2, 3)).movedim(0, 2).flatten(0, 2)
        for value in (layer.weight, layer.bias)
    ]
    return linear(*turned)


def linear(weight, bias):
    """A layer of these values."""
    layer = torch.nn.Linear(*weight.shape[::-1])
    layer.weight.data, layer.bias.data = weight.detach(), bias.detach()
    return layer


# The same for single ports that are cut otherwise; None where there is no such layer.
OTHER = {
    ("vit", "chainer", "one projection for all three"): {
        f"blocks.{i}.attn.in_proj{part}": None if part else f"layers.{i}.attention.w_qkv"
        for i in (0, 1)
        for part in ("", " 0", " 1", " 2")
    },
    ("autoencoder", "jax", "one layer for mean and variance"): {
        "fc_mu": ("encoder.stats", both_heads),
        "fc_logvar": None,
    },
    ("autoencoder", "jax", "flattened channels last, both ways"): {
        "fc_mu": ("encoder.mu", columns_last("fc_mu")),
        "fc_logvar": ("encoder.logvar", columns_last("fc_logvar")),
        "decoder_input": ("decoder.dense", rows_last),
    },
    ("gpt", "jax", "mask kept by the block"): {},
    ("convnext_like", "jax", "perceptron by convolutions of one pixel"): {},
    ("convnext_like", "chainer", "grouped convolution"): {},
    ("convnext_like", "chainer", "norm of Chainer on the pixels"): {},
    ("convnext_like", "chainer", "perceptron by convolutions of one pixel"): {},
    ("convnext_like", "chainer", "layer scale as a parameter"): {
        f"stage{i}.gamma": f"block{i}.scale" for i in (1, 2)
    },
    ("gpt", "jax", "head of its own with the embedding as its weight"): {
        "wte": None,
        "wte.weight": ".tok",
    },
    ("gpt", "jax", "positions as a fresh table of zeros"): {"wpe": None, "wpe.weight": ".pos"},
    ("gpt", "jax", "three projections, the values first"): {
        f"h.{i}.attn.c_attn{part}": name and f"blocks.{i}.{name}"
        for i in (0, 1)
        for part, name in (("", None), (" 0", "query"), (" 1", "key"), (" 2", "value"))
    },
}


def source(pair, port, edits=()):
    """The source of a port after edits, each of a text that stands there once."""
    text = (FOLDER / pair / f"{port}.py").read_text()
    for old, new in edits:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def load(pair, port, edits=()):
    """The module of an edited port."""
    module = types.ModuleType(f"{pair}_{port}")
    exec(compile(source(pair, port, edits), f"{pair}/{port}", "exec"), module.__dict__)
    return module


# Reference
# -----------------------------------------------------------------------------


def leaves(value):
    """The arrays of a nest of outputs, in order."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if (
        isinstance(value, tuple) and len(value) == 3 and value[0].ndim == 4
    ):  # the autoencoder's, in the order of the dictionary
        value = value[::-1]
    if isinstance(value, (tuple, list)):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def square(arrays):
    """The sum of squares of some arrays."""
    return np.asarray(sum(float((np.asarray(a, np.float64) ** 2).sum()) for a in arrays))


def of_reference(reference):
    """What the reference computes."""
    batch = [
        torch.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in reference.batch()
    ]
    loss = getattr(
        reference, "loss", lambda net, *b: torch.nn.functional.cross_entropy(net(*b[:-1]), b[-1])
    )
    found = {}
    torch.manual_seed(0)
    net = reference.network().double()
    net.eval()
    for i, out in enumerate(leaves(net(*batch[:-1]))):
        found[f"eval {i}"] = out.detach().numpy()
    if reference.random:
        train = net.eval
    else:
        train = net.train
    train()
    for i, out in enumerate(leaves(copy.deepcopy(net)(*batch[:-1]))):
        found[f"train {i}"] = out.detach().numpy()
    if batch[0].is_floating_point():
        batch[0].requires_grad_(True)
    value = loss(net, *batch)
    value.backward()
    found["loss"] = value.detach().numpy()
    found["gradients"] = square([p.grad.numpy() for p in net.parameters() if p.grad is not None])
    if batch[0].requires_grad:
        found["gradient of the input"] = batch[0].grad.numpy()
    found["statistics"] = square([b.numpy() for n, b in net.named_buffers() if "running" in n])
    for name, make in getattr(reference, "OPTIMIZERS", {}).items():
        net = reference.network().double()
        train()
        net.train(not reference.random)
        before = [p.detach().clone().numpy() for p in net.parameters()]
        optimizer = make(net)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(net, *[b.detach() for b in batch]).backward()
            optimizer.step()
        after = [p.detach().numpy() for p in net.parameters()]
        found[f"optimizer {name}"] = square([a - b for a, b in zip(after, before)])
    return found


# flax
# -----------------------------------------------------------------------------


class Flax:
    """How to run a port in flax."""

    def __init__(self, module, reference):
        self.module = module
        with jax.enable_x64(True):
            self.net = module.network(reference)
            for _, variable in nnx.iter_graph(self.net):
                if (
                    hasattr(variable, "dtype")
                    and getattr(variable, "param_dtype", None) is not None
                ):
                    variable.dtype = jnp.float64  # nnx.Embed is as wide as its table was at first
                if isinstance(variable, nnx.Variable) and jnp.issubdtype(
                    getattr(variable.get_value(), "dtype", jnp.int32), jnp.floating
                ):
                    variable.set_value(jnp.asarray(np.asarray(variable.get_value()), jnp.float64))

    def layers(self):
        """Variables of each layer by name."""
        found = {}
        for path, module in nnx.iter_modules(self.net):
            own = {
                k: v
                for k, v in vars(module).items()
                if isinstance(v, nnx.Variable) and not isinstance(v, nnx.RngState)
            }
            found[".".join(map(str, path))] = (module, own)
        return found

    def read(self, variable):
        return np.asarray(variable.get_value())

    def write(self, variable, value):
        with jax.enable_x64(True):
            assert variable.get_value().shape == value.shape, (
                variable.get_value().shape,
                value.shape,
            )
            variable.set_value(jnp.asarray(value))

    def copied(self, layer, source):
        """Native values by name, of a layer of torch."""
        w = {k: v.detach().double().numpy() for k, v in source.state_dict().items()}
        kind = type(source).__name__
        if kind == "Linear":
            values = {"kernel": w["weight"].T}
        elif kind == "Conv2d":
            values = {"kernel": w["weight"].transpose(2, 3, 1, 0)}
        elif kind == "ConvTranspose2d":
            values = {"kernel": w["weight"].transpose(2, 3, 0, 1)[::-1, ::-1]}
            if getattr(layer, "transpose_kernel", False):
                values = {"kernel": w["weight"].transpose(2, 3, 1, 0)}
        elif kind == "Embedding":
            values = {"embedding": w["weight"]}
        else:
            mean, var = w.get("running_mean"), w.get("running_var")
            values = {"scale": w["weight"], "mean": mean, "var": var}
            values |= {
                "gamma": w["weight"],
                "beta": w["bias"],
                "running_mean": mean,
                "running_var": var,
            }
        if "bias" in w:
            values["bias"] = w["bias"]
        return values

    def run(self, batch, last, short=False):
        """All that is compared; with inputs channels last or as they are."""
        with jax.enable_x64(True):
            return self._run(batch, last, short)

    def _loss(self, turned):
        own = getattr(self.module, "loss", None)
        if own is not None:
            return own

        def default(net, *b):
            logits = net(*b[:-1])
            logits = logits[0] if isinstance(logits, tuple) else logits
            if not turned:
                logits = jnp.moveaxis(logits, 1, -1)
            logp = jax.nn.log_softmax(logits)
            return -jnp.take_along_axis(logp, b[-1][..., None], -1).mean()

        return default

    def _run(self, batch, last, short):
        batch = [jnp.asarray(a.astype(np.float64) if a.dtype.kind == "f" else a) for a in batch]
        if last:
            batch = [jnp.moveaxis(b, 1, -1) if b.ndim == 4 else b for b in batch]
        loss = self._loss(last)
        found = {}
        net = nnx.clone(self.net)
        net.eval()
        for i, out in enumerate(leaves(net(*batch[:-1]))):
            found[f"eval {i}"] = self._turned(out, last)
        if short:
            return found
        if not self.module.random:
            net.train()
        for i, out in enumerate(leaves(nnx.clone(net)(*batch[:-1]))):
            found[f"train {i}"] = self._turned(out, last)
        if batch[0].dtype.kind == "f":
            value, (gradient, of_input) = nnx.value_and_grad(loss, argnums=(0, 1))(net, *batch)
            found["gradient of the input"] = self._turned(of_input, last)
        else:
            value, gradient = nnx.value_and_grad(loss)(net, *batch)
        found["loss"] = np.asarray(value)
        found["gradients"] = square(jax.tree.leaves(gradient))
        found["statistics"] = square(jax.tree.leaves(nnx.state(net, nnx.BatchStat)))
        for name, make in getattr(self.module, "OPTIMIZERS", {}).items():
            net = nnx.clone(self.net)
            net.eval() if self.module.random else net.train()
            before = list(map(np.asarray, jax.tree.leaves(nnx.state(net, nnx.Param))))
            optimizer = nnx.Optimizer(net, make(net), wrt=nnx.Param)
            for _ in range(STEPS):
                optimizer.update(net, nnx.grad(loss)(net, *batch))
            after = jax.tree.leaves(nnx.state(net, nnx.Param))
            found[f"optimizer {name}"] = square([np.asarray(a) - b for a, b in zip(after, before)])
        return found

    def _turned(self, out, last):
        out = np.asarray(out)
        return np.moveaxis(out, -1, 1) if last and out.ndim == 4 else out


# Chainer
# -----------------------------------------------------------------------------


class Chainer:
    """How to run a port in Chainer."""

    def __init__(self, module, reference):
        self.module = module
        with chainer.using_config("dtype", np.float64):
            np.random.seed(0)
            self.net = module.network(reference)
        self.widened = False

    def widen(self, batch):
        """In float64, after a call that finds the sizes."""
        if self.widened:
            return
        with chainer.using_config("train", False):
            for link in self.net.links():
                for name in getattr(link, "_persistent", ()):
                    value = getattr(link, name)
                    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                        setattr(link, name, value.astype(np.float64))
            for parameter in self.net.params():
                if parameter.array is not None:
                    parameter.array = parameter.array.astype(np.float64)
            self.net(*batch[:-1])
        for parameter in self.net.params():
            parameter.array = parameter.array.astype(np.float64)
        self.widened = True

    def layers(self):
        """Parameters and persistent values of each link by name."""
        found = {}
        for path, link in self.net.namedlinks():
            own = {n: (link, n) for n in sorted(link._params)}
            own |= {
                n: (link, n) for n in link._persistent if isinstance(getattr(link, n), np.ndarray)
            }
            found[path.strip("/").replace("/", ".")] = (link, own)
        return found

    def read(self, place):
        value = getattr(*place)
        return value.array if isinstance(value, chainer.Parameter) else value

    def write(self, place, value):
        assert self.read(place).shape == value.shape, (self.read(place).shape, value.shape)
        if isinstance(getattr(*place), chainer.Parameter):
            getattr(*place).array = np.array(value)
        else:
            setattr(*place, np.array(value))

    def copied(self, layer, source):
        """Native values by name, of a layer of torch."""
        w = {k: v.detach().double().numpy() for k, v in source.state_dict().items()}
        if "Norm" in type(source).__name__:
            return {
                "gamma": w["weight"],
                "beta": w["bias"],
                "avg_mean": w.get("running_mean"),
                "avg_var": w.get("running_var"),
            }
        return {"W": w["weight"], "b": w.get("bias")}

    def _loss(self, net, *b):
        own = getattr(self.module, "loss", None)
        if own is not None:
            return own(net, *b)
        logits = net(*b[:-1])
        logits = logits[0] if isinstance(logits, tuple) else logits
        return chainer.functions.softmax_cross_entropy(logits, b[-1])

    def run(self, batch, last, short=False):
        """All that is compared."""
        assert not last
        batch = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in batch]
        self.widen(batch)
        found = {}
        with chainer.using_config("dtype", np.float64):
            with chainer.using_config("train", False):
                for i, out in enumerate(leaves(self.net(*batch[:-1]))):
                    found[f"eval {i}"] = out.array
            if short:
                return found
            with chainer.using_config("train", not self.module.random):
                for i, out in enumerate(leaves(copy.deepcopy(self.net)(*batch[:-1]))):
                    found[f"train {i}"] = out.array
                net = copy.deepcopy(self.net)
                inputs = list(batch)
                if batch[0].dtype.kind == "f":
                    inputs[0] = chainer.Variable(batch[0])
                net.cleargrads()
                value = self._loss(net, *inputs)
                value.backward()
                found["loss"] = value.array
                found["gradients"] = square([p.grad for p in net.params() if p.grad is not None])
                if batch[0].dtype.kind == "f":
                    found["gradient of the input"] = inputs[0].grad
                found["statistics"] = square(
                    [
                        getattr(k, n)
                        for k in net.links()
                        for n in k._persistent
                        if n in ("avg_mean", "avg_var", "running_mean", "running_var")
                    ]
                )
                for name, make in getattr(self.module, "OPTIMIZERS", {}).items():
                    net = copy.deepcopy(self.net)
                    optimizer = make(net)
                    before = [p.array.copy() for p in net.params()]
                    for _ in range(STEPS):
                        net.cleargrads()
                        self._loss(net, *batch).backward()
                        optimizer.update()
                    found[f"optimizer {name}"] = square(
                        [p.array - b for p, b in zip(net.params(), before)]
                    )
        return found


KINDS = {"jax": Flax, "chainer": Chainer}


# The check
# -----------------------------------------------------------------------------


def differences(first, second):
    """What differs, by name: how much relative to its norm."""
    found = {}
    for name in first:
        if name not in second:
            found[name] = np.inf
            continue
        a, b = first[name], second[name]
        if a.shape != b.shape:
            found[name] = np.inf
            continue
        found[name] = float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-300))
        if np.linalg.norm(a) < 1e-25 and np.linalg.norm(b) < 1e-25:
            found[name] = 0.0
    return found


def worst(first, second):
    """What differs by more than rounding."""
    return {k: v for k, v in sorted(differences(first, second).items()) if not v <= NEAR}


def signature(side, entry):
    """What layers can be exchanged."""
    layer, own = entry
    return type(layer).__name__, tuple(
        (name, tuple(n for n in side.read(one).shape if n > 1)) for name, one in sorted(own.items())
    )


def fill(side, values):
    """Values of layers by signature, in an order for each signature."""
    groups = defaultdict(list)
    for entry in side.layers().values():
        if entry[1]:
            groups[signature(side, entry)].append(entry)
    for key, entries in groups.items():
        for entry, value in zip(entries, values[key], strict=True):
            for name, one in entry[1].items():
                side.write(one, value[name].reshape(side.read(one).shape))


def taken(side):
    """The values of layers by signature."""
    groups = defaultdict(list)
    for entry in side.layers().values():
        if entry[1]:
            groups[signature(side, entry)].append(
                {n: np.array(side.read(v)) for n, v in entry[1].items()}
            )
    return groups


def orders(values):
    """All ways to hand out values among layers of one signature."""
    keys = list(values)
    for chosen in itertools.product(*(itertools.permutations(values[key]) for key in keys)):
        yield dict(zip(keys, chosen))


def run(side, batch, wanted=None):
    """What a port computes; in the layout that fits the reference."""
    found, errors = [], []
    for last in (False, True) if isinstance(side, Flax) else (False,):
        if last and not any(a.ndim == 4 for a in batch[:-1]):
            continue
        try:
            found.append(side.run(batch, last))
        except Exception as error:
            errors.append(error)
    if not found:
        raise errors[-1]
    if wanted is None:
        return found[0]
    return min(found, key=lambda one: len(worst(wanted, one)))


def settle(side, values, batch, wanted):
    """Hand out the values among the layers so that outputs in evaluation are right; in any order if none is."""
    for order in itertools.islice(orders(values), 300):
        fill(side, order)
        for last in (False, True):
            try:
                found = side.run(batch, last, short=True)
            except Exception:
                continue
            if not worst({n: v for n, v in wanted.items() if "eval" in n}, found):
                return


def copy_by_name(side, net, table):
    """The reference's weights into the port's layers."""
    layers, names = side.layers(), dict(net.named_modules())
    for a, b in table.items():
        if b is None:
            continue
        b, make = b if isinstance(b, tuple) else (b, None)
        if b in layers:
            layer, own = layers[b]
            new = side.copied(layer, make(names) if make else part_of(names, a))
            for name, one in own.items():
                side.write(one, new[name].reshape(side.read(one).shape))
            continue
        owner, _, b = b.rpartition(".")  # a parameter
        one = layers[owner][1][b]
        side.write(
            one,
            dict(net.named_parameters())[a].detach().double().numpy().reshape(side.read(one).shape),
        )


def part_of(names, path):
    """A layer, the projections of an attention as a layer, or a third of one: ``"attn.in_proj 0"``."""
    path, _, part = path.partition(" ")
    if path in names and not part:
        return names[path]
    owner = names.get(path) or names[path.removesuffix(".in_proj")]
    weight, bias = (
        (owner.in_proj_weight, owner.in_proj_bias)
        if path not in names
        else (owner.weight, owner.bias)
    )
    if part:
        weight, bias = weight.chunk(3)[int(part)], bias.chunk(3)[int(part)]
    return linear(weight, bias)


def made(pair, port, edits, reference, batch):
    """A port, ready to run."""
    module = load(pair, port, edits)
    module.random = pair in RANDOM
    side = KINDS[port](module, reference)
    if port == "chainer":
        side.widen([a.astype(np.float64) if a.dtype.kind == "f" else a for a in batch])
    return side


def check(pair, only=()):
    """Print what is not as it should be; the number of such cases."""
    print(pair, flush=True)
    reference = importlib.import_module(f"tests.score.pairs.{pair}.reference")
    reference.random = pair in RANDOM
    edits = importlib.import_module(f"tests.score.pairs.{pair}.edits")
    batch = reference.batch()
    wanted = of_reference(reference)
    bad = 0
    bases, values = {}, {}
    print(
        pair,
        sum(p.numel() for p in reference.network().parameters()),
        "parameters",
        {k: v.shape for k, v in wanted.items() if "eval" in k},
    )
    for port in ("jax", "chainer"):
        net = reference.network()
        side = made(pair, port, (), net, batch)
        if side.module.WEIGHTS == "load":
            copy_by_name(side, net, NAMES[pair, port])
            values[port] = taken(side)
        bases[port] = run(side, batch, wanted)
        if off := worst(wanted, bases[port]):
            print(f"  {port}: NOT RIGHT {off}")
            bad += 1
    for case in (*edits.RIGHT, *edits.MISTAKES):
        mistake = hasattr(case, "places")
        if only and f"={case.name}" not in only:
            continue
        try:
            side = made(pair, case.port, case.edits, reference.network(), batch)
            if case.port in values and mistake:
                fill(side, values[case.port])
            if case.port in values and not mistake:
                other = OTHER.get((pair, case.port, case.name))
                if other is None:
                    settle(side, values[case.port], batch, wanted)
                else:
                    copy_by_name(side, reference.network(), NAMES[pair, case.port] | other)
            off = worst(wanted, run(side, batch, wanted))
        except Exception as error:
            off = {f"{type(error).__name__}: {str(error)[:150]}": np.inf}
        if mistake:
            seen = any(n.startswith("eval") or ":" in n for n in off)
            if not off or (case.effect is not None and seen != case.effect):
                print(f"  {case.port} {case.name}: effect {case.effect}, differs {off}")
                bad += 1
            else:
                print(f"    ok {case.port} {case.name}: {next(iter(off.items()))}", flush=True)
        elif off:
            print(f"  {case.port} right {case.name}: {off}")
            bad += 1
    names = [(hasattr(c, "places"), c.port, c.name) for c in (*edits.RIGHT, *edits.MISTAKES)]
    assert len(set(names)) == len(names), "a name twice"
    count = {
        (kind, port): sum(n[:2] == (kind == "mistakes", port) for n in names)
        for kind in ("mistakes", "right")
        for port in ("jax", "chainer")
    }
    print(f"  {count}, {bad} bad")
    return bad


if __name__ == "__main__":
    ONLY = [one for one in sys.argv[1:] if one.startswith("=")]
    sys.exit(sum(check(one, ONLY) for one in sys.argv[1:] if one not in ONLY))
