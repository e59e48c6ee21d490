"""The rules on lines of source, and what a mutant is known to change."""

import ast
from pathlib import Path

import pytest

from tests.score import mutants
from tests.score.judging import BROKEN, EQUAL
from tests.score.mutants import Mutation, changes_of, draw, find, places
from tests.score.rules import RULES, changes
from tests.score.running import run

FOLDER = Path(__file__).parent


def mutated(rule, statement, method="forward"):
    """The statement as the rule writes it, in all ways."""
    source = f"class Net:\n    def {method}(self, x, y):\n        {statement}\n"
    found = [one.apply(source) for one in changes(source) if one.rule == rule]
    return [text.split(":\n", 2)[2].strip() for text in found]


@pytest.mark.parametrize(
    ("rule", "statement", "wrong"),
    [
        ("epsilon", "nn.BatchNorm2d(4)", ["nn.BatchNorm2d(4, eps=0.001)"]),
        ("epsilon", "nn.LayerNorm(4, eps=1e-3)", ["nn.LayerNorm(4, eps=1e-05)"]),
        (
            "momentum",
            "nn.BatchNorm2d(4, 1e-5, 0.1)",
            ["nn.BatchNorm2d(4, 1e-05, 0.01)"],
        ),
        ("stride", "nn.Conv2d(3, 4, 3, 2)", ["nn.Conv2d(3, 4, 3, 1)"]),
        ("stride", "nn.Conv2d(3, 4, 3)", ["nn.Conv2d(3, 4, 3, stride=2)"]),
        ("bias", "nn.Linear(3, 4)", ["nn.Linear(3, 4, bias=False)"]),
        ("bias", "nn.Linear(3, 4, bias=own)", ["nn.Linear(3, 4, bias=not own)"]),
        ("stride", "return self.conv1(x)", []),
        ("groups of a norm", "nn.GroupNorm(2, 8)", ["nn.GroupNorm(1, 8)"]),
        ("axis", "F.softmax(x, dim=-1)", ["F.softmax(x, dim=1)"]),
        ("rate of dropout", "F.dropout(x, 0.1)", ["F.dropout(x, 0.25)"]),
        ("argument dropped", "self.f(x, mask=y)", ["self.f(x)"]),
        ("other activation", "return F.relu(x)", ["return F.gelu(x)"]),
        ("activation lost", "return self.act(x)", ["return x"]),
        ("layer skipped", "return self.conv(x)", ["return x"]),
        ("layer twice", "return self.conv(x)", ["return self.conv(self.conv(x))"]),
        ("order of two calls", "self.a(self.b(x))", ["self.b(self.a(x))"]),
        ("order of concatenation", "torch.cat([x, y], 1)", ["torch.cat([y, x], 1)"]),
        ("lost addition", "return x + y", ["return (x)", "return (y)"]),
        ("lost addition", "x += y", ["x = x"]),
        ("lost factor", "return x * y", ["return (x)", "return (y)"]),
        ("other factor", "return x * 0.5", ["return (x * 1.0)"]),
        ("other reduction", "x.mean(1)", ["x.sum(1)"]),
        ("slice off by one", "x[:, 1:]", ["x[:, :-1]"]),
        ("slice off by one", "x[:, 0]", ["x[:, 1]"]),
        ("transposition lost", "x.transpose(1, 2)", ["x"]),
        (
            "heads and tokens mixed",
            "x.view(a, b, c).transpose(1, 2)",
            ["x.view(a, c, b)"],
        ),
        ("no gradient", "return self.f(x) + x", ["return (self.f(x) + x.detach())"]),
        ("weight untied", "self.out.weight = self.embed.weight", ["pass"]),
        ("betas", "Adam(p, betas=(0.9, 0.98))", ["Adam(p, betas=(0.999, 0.9))"]),
    ],
)
def test_a_rule_writes_the_mistake(rule, statement, wrong):
    assert mutated(rule, statement) == wrong


def test_two_steps_change_places_and_blocks_are_left_out_or_reversed():
    steps = "x = self.a(x)\n        x = self.b(x)"
    (text,) = mutated("order of two statements", steps)
    assert [line.strip() for line in text.splitlines()] == [
        "x = self.b(x)",
        "x = self.a(x)",
    ]
    loop = "for block in self.blocks:\n            x = block(x)"
    assert mutated("blocks reversed", loop)[0].startswith(
        "for block in list(self.blocks)[::-1]:"
    )
    assert mutated("last block skipped", loop)[0].startswith(
        "for block in list(self.blocks)[:-1]:"
    )


def test_there_are_forty_rules_and_each_change_is_source():
    assert len(RULES) > 40
    for name in ("ours SmallResNet", "optimizer adam"):
        source = mutants.source(find(name).module)
        for change in changes_of(find(name).module)[::7]:
            assert change.apply(source) != source
            ast.parse(change.apply(source))


def test_a_draw_is_the_same_for_a_seed_and_without_repeats():
    one, again, other = (list(draw(30, seed, of="ours LeNet")) for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) == 30


def index_of(name, rule, **wanted):
    """The first change of a rule for which all this is true."""
    found = enumerate(changes_of(find(name).module))
    return next(
        index
        for index, change in found
        if change.rule == rule and vars(change).items() >= wanted.items()
    )


def test_a_setting_is_placed_at_its_layer_and_a_step_at_its_block():
    kind, name = find("ours LeNet"), "ours LeNet"
    network = kind.build(__import__(kind.module, fromlist=["LeNet"]))("torch")
    text = mutants.source(kind.module)
    change = changes_of(kind.module)[index_of(name, "stride", attributes=("conv2",))]
    assert places(change, text, kind.module, network) == (
        "conv2",
        "conv2.weight",
        "conv2.bias",
    )
    change = changes_of(kind.module)[index_of(name, "order of two calls")]
    assert "" in places(change, text, kind.module, network)


def test_what_changes_nothing_or_does_not_run_is_left_out():
    name = "ours LeNet"
    for rule, wanted in (("ceiling of sizes", EQUAL), ("padding", BROKEN)):
        assert (
            run(Mutation(name, "torch", index_of(name, rule), rule))[1].verdict
            == wanted
        )


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("[a-z]*.py")), ids=lambda path: path.name
)
def test_what_makes_mistakes_knows_of_the_proof_only_what_compares_and_reports(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    of_proof = {
        module for module in imported if module.startswith("deliralike.conformance")
    }
    allowed = {"deliralike.conformance"}
    if path.name == "test_judging.py":
        allowed |= {"deliralike.conformance.findings", "deliralike.conformance.proof"}
    assert of_proof <= allowed
