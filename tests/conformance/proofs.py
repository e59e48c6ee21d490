"""Proofs made by hand, as the levels would give them."""

from dataclasses import replace

import numpy as np

from deliralike.conformance.findings import (
    FAILED,
    NOT_NEEDED,
    NOT_REACHED,
    PASSED,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.proof import Proof, Proofs

TITLES = {
    "L0": "names, shapes, structure",
    "L1": "semantics in float64",
    "L3": "layers alone at equal inputs",
    "L4": "one step of the optimizer",
    "L7": "other sizes of input",
}
EPS = Finding(
    level="L3",
    place="bn1",
    kind="BatchNorm2d",
    what="output",
    mode="train",
    difference=9.0e-6,
    explanation=Explanation("eps=2e-05 instead of 1e-05", 3e-15, 9e-6),
    remarks=(
        "Everything before it is exact.",
        "Effect on evaluation outputs about 1e-05; not visible in 20 steps of the loss.",
    ),
)


def layers(count=24, wrong_from=None, seed=0):
    """Differences of a network of blocks of three layers, exact at the start; wrong from one layer
    on."""
    generator = np.random.default_rng(seed)
    kinds = [("conv", "Conv2d"), ("bn", "BatchNorm2d"), ("relu", "ReLU")]
    found = []
    for index in range(count):
        name, kind = kinds[index % 3]
        noise = 10.0 ** generator.uniform(-16, -14.8, 3) * (index > 4)
        train, evaluated, forced = (float(value) for value in noise)
        if wrong_from is not None and index >= wrong_from:
            train, evaluated = (
                train + 9e-6 * 1.05 ** (index - wrong_from),
                evaluated + 4e-6,
            )
            forced = 9e-6 if index == wrong_from else forced
        path = f"layer{index // 18 + 1}.{index // 9 % 2}.{name}{index // 3 % 3 + 1}"
        row = {
            "path": path,
            "kind": kind,
            "train": train,
            "eval": evaluated,
            "forced": forced,
        }
        found.append(row)
    return found


def gradients(layers, wrong=()):
    """A table of them, those named wrong by 1e-5."""
    names = [f"{layer['path']}.weight" for layer in layers if layer["kind"] != "ReLU"]
    rows = [
        {"name": name, "difference": 1e-5 if name in wrong else 2e-15, "norm": 0.3}
        for name in names
    ]
    return [{"name": "conv1.bias", "difference": 1.7, "norm": 3e-17}, *rows]


def level(name, status=PASSED, worst=None, **more):
    return Level(name, TITLES[name], status, worst, **more)


def proved(candidate="ResNet on jax", **changes):
    drawn = layers()
    made = Proof(
        reference="ResNet on torch",
        candidate=candidate,
        levels=(
            level("L0"),
            level(
                "L1",
                worst=3.1e-15,
                figures={
                    "gradients": gradients(drawn),
                    "null": ["fc.0.bias", "conv1.bias"],
                },
            ),
            level("L3", worst=1.2e-15, figures={"by_layer": drawn}),
            level("L4", worst=0.0),
            level("L7", NOT_REACHED, notes=("No other size is taken.",)),
        ),
        precision={
            "reference": {"TF32": "off", "matmul": "highest"},
            "candidate": {"x64": "on", "matmul": "highest"},
        },
        versions={"torch": "torch 2.13.0", "jax": "0.10.2", "deliralike": "0.1"},
        batch={"args[0]": "float64 (5, 3, 33, 31)", "args[1]": "int64 (5,)"},
        match="equal names",
        seconds=12.34,
    )
    return replace(made, **changes)


def diverging(candidate="ResNet on chainer", **changes):
    drawn = layers(wrong_from=13)
    wrong = [
        f"{layer['path']}.weight" for layer in drawn[:20] if layer["kind"] != "ReLU"
    ]
    semantics = Finding("L1", "outputs", "output", 1.1e-5, mode="eval")
    gradient = Finding("L1", wrong[0], "gradient", 1e-5, mode="train")
    made = proved(candidate)
    levels = (
        level("L0"),
        level(
            "L1",
            FAILED,
            1.1e-5,
            findings=(semantics, gradient),
            figures={"gradients": gradients(drawn, wrong), "null": ["conv1.bias"]},
        ),
        level("L3", FAILED, 9e-6, findings=(EPS,), figures={"by_layer": drawn}),
        level("L4", FAILED, 3e-5),
        level("L7", NOT_NEEDED, notes=("L1 failed.",)),
    )
    return replace(made, levels=levels, **changes)


def undecided(candidate="ResNet on jax"):
    reason = "The candidate has no float64"
    return replace(
        proved(candidate),
        levels=(level("L0"), level("L1", NOT_REACHED, notes=(f"{reason}.",))),
    )


def several():
    return Proofs(
        (proved(), diverging(), undecided("ResNet on tpu"), proved("ResNet on torch"))
    )
