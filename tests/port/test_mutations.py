"""Mistakes in the port's own table are refused by the proof."""

import ast
import copy
from dataclasses import replace

import numpy as np
import pytest

from deliralike import port

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from deliralike.port import pytorch, rewriting  # noqa: E402
from deliralike.port.calls import NN, written  # noqa: E402
from deliralike.port.torch_modules import PyTorch  # noqa: E402
from tests.port import small  # noqa: E402

TABLES = [
    *(PyTorch.functions, PyTorch.methods, PyTorch.attributes),
    *(PyTorch.numpy_functions, PyTorch.numpy_methods),
    {"plain": pytorch.plain},  # which writes many entries
]
SIBLINGS = [
    ("sum", "mean"),
    ("amax", "amin"),
    ("zeros", "ones"),
    ("std", "var"),
    ("cat", "stack"),
]
RENAMED = dict(SIBLINGS) | {two: one for one, two in SIBLINGS}
SHAPES = {"Shapes": (1, 4, 6), "Numbers": (3, 5), "Pictures": (3, 2, 5, 6)}
COUNTS = {
    "Shapes": 14,
    "Numbers": 13,
    "Pictures": 14,
}  # of mutations that change the result


def changes_of(node):
    """A node of a syntax tree with one mistake, of each kind that it allows."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        is_truth = isinstance(node.value, bool)
        yield {"value": not node.value if is_truth else node.value + 1}
    if isinstance(node, ast.Attribute) and node.attr in RENAMED:
        yield {"attr": RENAMED[node.attr]}
    if isinstance(node, ast.Call):
        if node.keywords:
            yield {"keywords": node.keywords[:-1]}
        if len(node.args) > 1:
            yield {"args": node.args[:-1]}
            yield {"args": [node.args[1], node.args[0], *node.args[2:]]}


def mutants(text):
    """Expressions that differ from one in one place."""
    for number, node in enumerate(ast.walk(ast.parse(text, mode="eval"))):
        for change in changes_of(node):
            tree = ast.parse(text, mode="eval")
            changed = list(ast.walk(tree))[number]
            for name, value in copy.deepcopy(change).items():
                setattr(changed, name, value)
            yield ast.unparse(tree)


def ported(name):
    torch.manual_seed(0)
    x = np.random.default_rng(1).standard_normal(SHAPES[name]).astype(np.float32)
    return port(getattr(small, name), (x,))


def put(patch, number, entry, write):
    if entry != "plain":
        patch.setitem(TABLES[number], entry, write)
        return
    patch.setattr(pytorch, entry, write)
    patch.setattr(rewriting, entry, write)


def watched(name, monkeypatch):
    """The port of a class, and what the entries of the tables wrote in it."""
    texts = {}
    with monkeypatch.context() as patch:
        for number, table in enumerate(TABLES):
            for entry, write in table.items():

                def noting(*given, entry=entry, write=write):
                    text = (
                        written(write, *given)
                        if isinstance(write, str)
                        else write(*given)
                    )
                    texts[text] = entry
                    return text

                put(patch, number, entry, noting)
        return ported(name), texts


def mistaken(found, text, mutant):
    """The port as it would be if the entry that wrote a text wrote another one; None without it."""
    for owner in ("nn.", "self.nn."):
        before, after = (one.replace(f"{NN}.", owner) for one in (text, mutant))
        if before in found.source:
            return replace(
                found, source=found.source.replace(before, after), _module=None
            )
    return None


def is_changed(found):
    """Whether outputs of the port are others than those of the class, in float64."""
    original = copy.deepcopy(found.reference).double().eval()
    x = torch.tensor(found.inputs[0], dtype=torch.float64)
    try:
        came = found.network("torch", dtype="float64").eval()(x)
    except Exception:
        return False  # a port that does not run is none
    wanted = original(x)
    return wanted.shape != came.shape or not torch.allclose(
        wanted, came, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_mistake_in_the_table_that_changes_the_result_is_refused(name, monkeypatch):
    found, texts = watched(name, monkeypatch)
    assert found.hands == [] and found.prove("torch").headline.startswith("PROVED")
    every = [(text, mutant) for text in texts for mutant in mutants(text)]
    changed, undetected = 0, []
    for at in np.random.default_rng(0).permutation(len(every)):
        text, mutant = every[at]
        wrong = mistaken(found, text, mutant)
        if wrong is not None and is_changed(wrong):
            changed += 1
            if wrong.prove("torch", ("L0", "L1")).headline.startswith("PROVED"):
                undetected.append((texts[text], text, mutant))
        if changed == COUNTS[name]:
            break
    assert undetected == []
    assert changed == COUNTS[name]


def test_an_output_with_its_axes_elsewhere_is_another_network():
    found = ported("Shapes")
    assert "nn.transpose(h, 1, 2)" in found.source
    found.source = found.source.replace("nn.transpose(h, 1, 2)", "h")
    proof = found.prove("torch", ("L0", "L1"))
    assert proof.headline.startswith("DIVERGES"), proof.headline
