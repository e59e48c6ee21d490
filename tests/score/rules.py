"""Mistakes as rules: each changes one expression of a network's source in a way that people do.

A rule is given a node of the syntax tree and yields what may stand in its place, each with regular
expressions that the cause has to fit: the setting, and the number that is wrong.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

Cause = tuple[str, ...]
Changed = Iterator[tuple[ast.AST | str, Cause]]
RULES: dict[str, Callable[[Any], Changed]] = {}


@dataclass(frozen=True)
class Change:
    """One mistake in a source.

    Attributes:
        rule: Which one made it.
        start, end: What is replaced, as offsets in the encoded source.
        text: What stands there then.
        cause: Regular expressions for the printed cause.
        line: The number of the first line.
        owner: The class, or the function outside of classes, that holds it.
        attributes: Of the class, which the statement sets or calls.
        builds: Whether it is in the method that builds the network.
    """

    rule: str
    start: int
    end: int
    text: str
    cause: Cause
    line: int
    owner: str
    attributes: tuple[str, ...]
    builds: bool

    def apply(self, source: str) -> str:
        """The source with the mistake."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


def rule(function: Callable[[Any], Changed]) -> Callable[[Any], Changed]:
    """Register a rule under its name in words."""
    RULES[function.__name__.replace("_", " ")] = function
    return function


# Nodes
# -----------------------------------------------------------------------------


def tail(node: ast.AST) -> str:
    """The last part of the name of what is called: ``"Conv2d"`` of ``nn.Conv2d(…)``."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def changed(node: ast.AST, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def is_own_call(node: ast.AST) -> bool:
    """Whether it calls an attribute of the network with one argument: ``self.conv(x)``."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="self")), args=[_], keywords=[]
        ):
            return True
    return False


def number(value: float) -> str:
    """A regular expression for a number as reports print it."""
    forms = {f"{value:g}", f"{value:.0e}", repr(value)}
    forms |= {form.replace("e-0", "e-") for form in forms}
    return rf"(?<![\w.])({'|'.join(map(re.escape, sorted(forms)))})(?!\w|\.\d)"


def literal(node: ast.AST | None) -> Any:
    """The value of a constant; None for everything else."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


# Settings of layers, losses and optimizers
# -----------------------------------------------------------------------------

NORM = r"(Batch|Layer|Group|Instance|RMS)Norm\w*|\w*norm(_layer)?|bn"
BATCH_NORM = r"BatchNorm\w*|norm(_layer)?|bn"
CONV = r"Conv\dd|conv|\w*[Cc]onv\dd?(_layer)?"
WEIGHTS = r"affine|weight|scale|bias|missing|norm\("
OPTIMIZER = r"SGD|Adam|AdamW|RMSprop|Adagrad|NAdam|RAdam|Adadelta|Adamax"
POSITIONS = {
    CONV: ("", "", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
    r"MaxPool\dd": ("kernel_size", "stride", "padding", "dilation"),
    r"AvgPool\dd": (
        "kernel_size",
        "stride",
        "padding",
        "ceil_mode",
        "count_include_pad",
    ),
    r"max_pool\dd|avg_pool\dd": ("", "kernel_size", "stride", "padding"),
    r"(Batch|Instance)Norm\dd": ("", "eps", "momentum", "affine"),
    r"LayerNorm|RMSNorm": ("", "eps"),
    r"GroupNorm": ("num_groups", "", "eps"),
    r"Dropout\w*": ("p",),
    r"dropout": ("", "p"),
    r"Linear": ("", "", "bias"),
    r"Softmax": ("dim",),
    r"softmax|log_softmax|cumsum|normalize": ("", "dim"),
    r"LeakyReLU|ELU": ("negative_slope",),
    r"leaky_relu": ("", "negative_slope"),
    r"GELU": ("approximate",),
    r"MultiheadAttention": ("", "num_heads"),
    r"interpolate": ("", "size", "scale_factor", "mode", "align_corners"),
    r"Upsample": ("size", "scale_factor", "mode", "align_corners"),
}
DEFAULTS = {
    "stride": 1,
    "padding": 0,
    "groups": 1,
    "bias": True,
    "affine": True,
    "elementwise_affine": True,
    "track_running_stats": True,
    "count_include_pad": True,
}
# rule, what is called, the setting, what is wrong unless it stands there, and then, words for it
SETTINGS: tuple[tuple[str, str, str, Any, Any, str], ...] = (
    ("epsilon", NORM, "eps", 1e-3, 1e-5, "eps"),
    ("epsilon of another framework", BATCH_NORM, "eps", 2e-5, 1e-5, "eps"),
    ("momentum", BATCH_NORM, "momentum", 0.01, 0.1, "momentum|decay"),
    ("momentum of the other convention", BATCH_NORM, "momentum", 0.9, 0.1, "momentum|decay"),
    ("norm without weights", r"(Batch|Instance|Group)Norm\w*", "affine", None, None, WEIGHTS),
    ("norm without weights", "LayerNorm|RMSNorm", "elementwise_affine", None, None, WEIGHTS),
    ("no running statistics", BATCH_NORM, "track_running_stats", None, None, "running|statistic"),
    ("groups of a norm", "GroupNorm", "num_groups", 1, 2, "groups"),
    ("stride", CONV + r"|(Max|Avg)Pool\dd|(max|avg)_pool\dd", "stride", 1, 2, "stride"),
    ("padding", CONV, "padding", 0, 1, "pad"),
    ("padding mode", r"Conv\dd", "padding_mode", "reflect", "zeros", "pad"),
    ("dilation", CONV, "dilation", 2, 1, "dilat"),
    ("groups", CONV, "groups", 1, 2, "groups"),
    ("bias", CONV + "|Linear", "bias", None, None, "bias"),
    ("ceiling of sizes", r"(Max|Avg)Pool\dd", "ceil_mode", None, None, "ceil"),
    ("average without padding", r"AvgPool\dd|avg_pool\dd", "count_include_pad", None, None, "pad"),
    ("rate of dropout", r"Dropout\w*|dropout", "p", 0.25, 0.5, r"dropout|\bp\b|rate|keep"),
    ("slope", "LeakyReLU|leaky_relu", "negative_slope", 0.2, 0.01, "slope"),
    ("approximate GELU", "GELU|gelu", "approximate", "tanh", "none", "tanh|approximate"),
    ("axis", "Softmax|softmax|log_softmax|normalize|cumsum", "dim", 1, -2, "dim|axis|over"),
    ("corners", "interpolate|Upsample", "align_corners", None, None, "align_corners|corner"),
    ("mode of resizing", "interpolate|Upsample", "mode", "nearest", "bilinear", "nearest|linear"),
    ("number of heads", "MultiheadAttention", "num_heads", 1, 2, "head"),
    ("smoothed labels", "CrossEntropyLoss|cross_entropy", "label_smoothing", 0.1, 0.2, "smooth"),
    ("sum for mean", r"\w*(Loss|loss|entropy)", "reduction", "sum", "mean", "sum|number of"),
    ("ignored label", "CrossEntropyLoss|cross_entropy", "ignore_index", 0, 1, "ignor"),
    ("epsilon of an optimizer", OPTIMIZER, "eps", 1e-6, 1e-8, "eps"),
    ("betas", OPTIMIZER, "betas", (0.999, 0.9), (0.9, 0.98), "beta"),
    ("weight decay", OPTIMIZER, "weight_decay", 0.1, 0.01, "decay"),
    ("Nesterov", "SGD", "nesterov", None, None, "nesterov"),
    ("dampening", "SGD", "dampening", 0.1, 0.2, "dampen"),
    ("AMSGrad", "Adam|AdamW", "amsgrad", None, None, "amsgrad|maxim"),
    ("learning rate", OPTIMIZER, "lr", 0.003, 0.001, r"lr|learning rate"),
    ("momentum of an optimizer", "SGD|RMSprop", "momentum", 0.95, 0.9, "momentum"),
)  # fmt: skip


def _setting_rule(
    wanted: tuple[str, str, str, Any, Any, str],
) -> Callable[[Any], Changed]:
    _, layers, name, wrong, otherwise, words = wanted

    def apply(node: Any) -> Changed:
        if not isinstance(node, ast.Call) or not re.fullmatch(layers, tail(node)):
            return
        if (
            isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "self"
        ):
            return  # a layer of the network, which is called
        found = argument(node, name)
        value = DEFAULTS.get(name) if found is None else literal(found)
        if wrong is None:
            value = False if found is None and value is None else value
            new = ast.Constant(not value) if isinstance(value, bool) else None
            new = new or ast.UnaryOp(ast.Not(), found)
        else:
            new = ast.parse(
                repr(otherwise if value == wrong else wrong), mode="eval"
            ).body
        value = literal(new)
        is_number = isinstance(value, float) or (isinstance(value, int) and value > 1)
        said = (number(value),) if is_number and not isinstance(value, bool) else ()
        if "momentum" in name and said:  # the share that is kept is as good
            said = (f"{said[0]}|{number(round(1 - value, 6))}",)
        yield with_argument(node, name, new), (words, *said)

    return apply


def positions(call: ast.Call) -> tuple[str, ...]:
    """The names of the arguments that a call may give by position."""
    for layers, names in POSITIONS.items():
        if re.fullmatch(layers, tail(call)):
            return names
    return ()


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of a call; None where it is not given."""
    for one in call.keywords:
        if one.arg == name:
            return one.value
    names = positions(call)
    index = names.index(name) if name in names else len(call.args)
    return call.args[index] if index < len(call.args) else None


def with_argument(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    """The call with another argument, which is added where it is not given."""
    old = argument(call, name)
    if old is None:
        return changed(call, keywords=[*call.keywords, ast.keyword(name, value)])
    args = [value if each is old else each for each in call.args]
    keywords = [
        changed(each, value=value) if each.value is old else each
        for each in call.keywords
    ]
    return changed(call, args=args, keywords=keywords)


def _add_settings() -> None:
    """One rule for each name; some names have two rows."""
    for name in dict.fromkeys(row[0] for row in SETTINGS):
        rows = [_setting_rule(row) for row in SETTINGS if row[0] == name]
        RULES[name] = lambda node, rows=rows: (
            each for row in rows for each in row(node)
        )


_add_settings()


@rule
def default_changed(node: Any) -> Changed:
    """A number that an argument has when it is not given."""
    if not isinstance(node, ast.arguments):
        return
    given = node.args[len(node.args) - len(node.defaults) :]
    for one, default in (
        *zip(given, node.defaults),
        *zip(node.kwonlyargs, node.kw_defaults),
    ):
        value = literal(default)
        if not isinstance(value, float) or not value:
            continue
        wrong = 1.5 * value if value >= 0.1 else 10 * value
        yield (default, repr(wrong)), (rf"{one.arg.split('_')[0]}|\bp=", number(wrong))


@rule
def argument_dropped(node: Any) -> Changed:
    if not isinstance(node, ast.Call):
        return
    for one in node.keywords:
        if one.arg and not isinstance(literal(one.value), str):
            rest = [each for each in node.keywords if each is not one]
            yield changed(node, keywords=rest), (one.arg.split("_")[0],)


@rule
def flag_flipped(node: Any) -> Changed:
    match node:
        case ast.keyword(arg=str(name), value=ast.Constant(value=bool(value))):
            yield changed(node, value=ast.Constant(not value)), (name,)


@rule
def arguments_exchanged(node: Any) -> Changed:
    match node:
        case ast.Call(
            func=ast.Attribute(), args=[ast.Name() as a, ast.Name() as b, *rest]
        ):
            yield changed(node, args=[b, a, *rest]), (_swapped(),)


def _swapped(*words: str) -> str:
    return "|".join(
        ("swap", "exchang", "instead of", "order", "before", "revers", *words)
    )


# Names: activations, reductions, poolings
# -----------------------------------------------------------------------------

ACTIVATIONS = {
    "ReLU": "LeakyReLU", "relu": "gelu", "ReLU6": "ReLU", "relu6": "relu", "GELU": "ReLU",
    "gelu": "relu", "SiLU": "Hardswish", "silu": "relu", "Tanh": "Sigmoid", "tanh": "sigmoid",
    "Sigmoid": "Tanh", "sigmoid": "tanh", "Hardswish": "SiLU", "hardswish": "silu",
    "Hardsigmoid": "Sigmoid", "LeakyReLU": "ReLU", "leaky_relu": "relu", "softplus": "relu",
    "Mish": "SiLU", "ELU": "ReLU",
}  # fmt: skip
REDUCTIONS = {"mean": "sum", "sum": "mean", "amax": "mean", "var": "std", "max": "mean"}
POOLINGS = {
    "MaxPool2d": "AvgPool2d", "AvgPool2d": "MaxPool2d", "AdaptiveAvgPool2d": "AdaptiveMaxPool2d",
    "adaptive_avg_pool2d": "adaptive_max_pool2d", "avg_pool2d": "max_pool2d",
    "max_pool2d": "avg_pool2d",
}  # fmt: skip
NORMS = {
    "LayerNorm": "RMSNorm",
    "BatchNorm2d": "InstanceNorm2d",
    "BatchNorm1d": "InstanceNorm1d",
}


def _renamed(node: Any, names: dict[str, str]) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Attribute(attr=name) if name in names:
            yield changed(node, attr=names[name]), names[name]
        case ast.Constant(value=str(name)) if name in names:
            yield ast.Constant(names[name]), names[name]


@rule
def other_activation(node: Any) -> Changed:
    for new, name in _renamed(node, ACTIVATIONS):
        yield new, (name.rstrip("u").lower() if name != "LeakyReLU" else "leaky|slope",)


@rule
def other_reduction(node: Any) -> Changed:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for new, name in _renamed(node.func, REDUCTIONS):
            yield changed(node, func=new), (f"{name}|times|factor|scale|×",)


@rule
def other_pooling(node: Any) -> Changed:
    for new, name in _renamed(node, POOLINGS):
        yield new, ("max" if "max" in name.lower() else "av(era)?g|mean",)


@rule
def other_norm(node: Any) -> Changed:
    for new, name in _renamed(node, NORMS):
        yield new, ("instance|sample" if name[0] == "I" else "rms|mean|root|cent|bias",)


ACTIVATED = re.compile(
    r"(re|ge|si|e)lu\d?|\w*act\w*|\w*nonlin\w*|sigmoid|tanh", re.IGNORECASE
)
LOST = "without|no |lost|left out|missing|not called|skip|identity|nothing|lack|leaves|instead of"


@rule
def activation_lost(node: Any) -> Changed:
    if not isinstance(node, ast.Call):
        return
    if node.args and len(node.args) == 1 and ACTIVATED.fullmatch(tail(node)):
        yield node.args[0], (LOST,)


@rule
def layer_skipped(node: Any) -> Changed:
    if is_own_call(node) and not ACTIVATED.fullmatch(tail(node)):
        yield node.args[0], (LOST,)


@rule
def layer_twice(node: Any) -> Changed:
    if is_own_call(node):
        yield changed(node, args=[node]), ("twice|two times|again|2 times|#2",)


@rule
def layer_replaced_by_identity(node: Any) -> Changed:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as function):
            if re.fullmatch(
                r"Dropout\w*|ReLU6?|GELU|SiLU|Tanh|Hardswish|MaxPool2d", name
            ):
                yield (
                    changed(node, func=changed(function, attr="Identity")),
                    (f"{LOST}|dropout",),
                )


# Order
# -----------------------------------------------------------------------------


@rule
def order_of_two_calls(node: Any) -> Changed:
    match node:
        case ast.Call(args=[ast.Call(args=[x], keywords=[]) as inner], keywords=[]):
            if isinstance(node.func, ast.Attribute) and isinstance(
                inner.func, ast.Attribute
            ):
                yield (
                    changed(inner, args=[changed(node, args=[x])]),
                    (_swapped("after"),),
                )


@rule
def order_of_two_statements(node: Any) -> Changed:
    body = node.body if isinstance(getattr(node, "body", None), list) else []
    for one, two in zip(body, body[1:]):
        if _is_own_step(one) and _is_own_step(two):
            text = f"{ast.unparse(two)}\n{' ' * one.col_offset}{ast.unparse(one)}"
            yield ((one, two), text), (_swapped("after"),)


def _is_own_step(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=x), *_])
        ):
            return name == x and isinstance(node.value.func, ast.Attribute)
    return False


@rule
def order_of_concatenation(node: Any) -> Changed:
    match node:
        case ast.Call(args=[(ast.List() | ast.Tuple()) as row, *rest]) if (
            len(row.elts) > 1
        ):
            if re.fullmatch("cat|concat|concatenate|stack", tail(node)):
                yield (
                    changed(node, args=[changed(row, elts=row.elts[::-1]), *rest]),
                    (_swapped(),),
                )


@rule
def operands_exchanged(node: Any) -> Changed:
    match node:
        case ast.BinOp(left=a, op=ast.Sub() | ast.Div() | ast.MatMult(), right=b):
            yield changed(node, left=b, right=a), (_swapped("sign", "negative"),)


@rule
def blocks_reversed(node: Any) -> Changed:
    match node:
        case ast.For(iter=ast.Attribute() as blocks):
            yield (blocks, f"list({ast.unparse(blocks)})[::-1]"), (_swapped(),)


@rule
def last_block_skipped(node: Any) -> Changed:
    match node:
        case ast.For(iter=ast.Attribute() as blocks):
            yield (blocks, f"list({ast.unparse(blocks)})[:-1]"), (LOST,)
        case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
            less = ast.BinOp(last, ast.Sub(), ast.Constant(1))
            yield changed(node, args=[*node.args[:-1], less]), (LOST,)


# Arithmetic
# -----------------------------------------------------------------------------


@rule
def lost_addition(node: Any) -> Changed:
    match node:
        case ast.BinOp(left=a, op=ast.Add(), right=b) if not literal(a) and not literal(
            b
        ):
            yield a, (f"{LOST}|shortcut|residual|added",)
            yield b, (f"{LOST}|shortcut|residual|added",)
        case ast.AugAssign(target=a, op=ast.Add()):
            yield (
                f"{ast.unparse(a)} = {ast.unparse(a)}",
                (f"{LOST}|shortcut|residual|added",),
            )


@rule
def difference_for_sum(node: Any) -> Changed:
    match node:
        case ast.BinOp(op=ast.Add()) | ast.AugAssign(op=ast.Add()):
            yield (
                changed(node, op=ast.Sub()),
                (r"sign|negat|minus|subtract|-1|-2 times|− | - ",),
            )
        case ast.BinOp(op=ast.Sub()):
            yield changed(node, op=ast.Add()), (r"sign|negat|plus|add|\+",)


@rule
def lost_factor(node: Any) -> Changed:
    match node:
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            yield a, (f"{LOST}|factor|scale|gate|times",)
            yield b, (f"{LOST}|factor|scale|gate|times",)
        case ast.BinOp(left=a, op=ast.Div()):
            yield a, (f"{LOST}|factor|scale|divi|times",)


@rule
def other_factor(node: Any) -> Changed:
    match node:
        case ast.BinOp(op=ast.Mult() | ast.Div() | ast.Add() | ast.Sub()):
            for side in ("left", "right"):
                value = literal(getattr(node, side))
                if isinstance(value, float) and value:
                    said = f"{number(2 * value)}|factor|times|scale"
                    yield changed(node, **{side: ast.Constant(2 * value)}), (said,)
        case ast.BinOp(op=ast.Pow(), right=exponent) if literal(exponent):
            other = ast.parse(repr(2 * literal(exponent)), mode="eval").body
            yield changed(node, right=other), ("scale|power|factor|times|sqrt|root",)


@rule
def no_gradient(node: Any) -> Changed:
    match node:
        case ast.BinOp(left=a, op=ast.Add() | ast.Mult(), right=ast.Name() as b):
            yield changed(node, right=_detached(b)), ("gradient|detach|stop",)
        case ast.BinOp(left=ast.Name() as a, op=ast.Add() | ast.Mult()):
            yield changed(node, left=_detached(a)), ("gradient|detach|stop",)


def _detached(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(node, "detach"), [], [])


# Axes and indices
# -----------------------------------------------------------------------------


@rule
def slice_off_by_one(node: Any) -> Changed:
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=parts) as index):
            for at, part in enumerate(parts):
                other = _shifted(part)
                if other is not None:
                    new = [other if i == at else each for i, each in enumerate(parts)]
                    yield (
                        changed(node, slice=changed(index, elts=new)),
                        (_swapped("slice", "shift", "token", "index", "off by"),),
                    )


def _shifted(part: ast.expr) -> ast.expr | None:
    match part:
        case ast.Slice(lower=ast.Constant(value=1), upper=None):
            return ast.parse("x[:-1]", mode="eval").body.slice
        case ast.Slice(lower=None, upper=ast.UnaryOp(operand=ast.Constant(value=1))):
            return ast.parse("x[1:]", mode="eval").body.slice
        case ast.Constant(value=0 | 1):
            return ast.Constant(1 - part.value)
    return None


@rule
def transposition_lost(node: Any) -> Changed:
    match node:
        case ast.Call(func=ast.Attribute(value=x, attr="transpose"), args=[_, _]):
            yield x, (f"{LOST}|transpos|axes|permut|order",)


@rule
def heads_and_tokens_mixed(node: Any) -> Changed:
    """A reshape to the transposed shape in the place of a transposition."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Call() as inner, attr="transpose"), args=[a, b]
        ):
            i, j = literal(a), literal(b)
            if (
                tail(inner) in ("view", "reshape")
                and isinstance(i, int)
                and isinstance(j, int)
            ):
                args = list(inner.args)
                if max(i, j) < len(args):
                    args[i], args[j] = args[j], args[i]
                    yield (
                        changed(inner, args=args),
                        ("transpos|axes|permut|order|reshap|head",),
                    )


@rule
def axes_permuted(node: Any) -> Changed:
    match node:
        case ast.Call(func=ast.Attribute(attr="permute"), args=[*first, a, b]) if first:
            yield changed(node, args=[*first, b, a]), ("transpos|axes|permut|order",)


@rule
def flattened_in_another_order(node: Any) -> Changed:
    match node:
        case ast.Call(
            func=ast.Attribute(attr="flatten"), args=[x, ast.Constant(value=1)]
        ):
            turned = ast.parse(f"{ast.unparse(x)}.transpose(1, -1)", mode="eval").body
            yield (
                changed(node, args=[turned, node.args[1]]),
                ("flatten|order|permut|transpos",),
            )


# Conditions
# -----------------------------------------------------------------------------


@rule
def condition_negated(node: Any) -> Changed:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield (test, f"not ({ast.unparse(test)})"), (f"{LOST}|train|eval|shortcut",)


@rule
def weight_untied(node: Any) -> Changed:
    match node:
        case ast.Assign(
            targets=[ast.Attribute(attr="weight")], value=ast.Attribute(attr="weight")
        ):
            yield "pass", ("tied|shared|shares|same|weight",)


# All changes of a source
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scope:
    owner: str
    builds: bool
    given: tuple[str, ...] = ()  # what a function that builds is called for
    attributes: tuple[str, ...] = ()


def changes(source: str) -> list[Change]:
    """Every mistake that the rules can make in the classes and functions of a source."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    found = []
    tree = ast.parse(source)
    builders = _builders(tree)
    for top in tree.body:
        for function in top.body if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(function, ast.FunctionDef):
                name = function.name
                builds = name == "__init__" or name in builders
                scope = _Scope(top.name, builds, tuple(builders.get(name, ())))
                for node, inner in _nodes(function, scope):
                    found += _changes(node, inner, offsets)
    return found


def _builders(tree: ast.Module) -> dict[str, dict[str, None]]:
    """Functions that build parts of networks, with the attributes for which they are called."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = {
        function.name for function in functions if not function.name.startswith("__")
    }
    found: dict[str, dict[str, None]] = {}
    for _ in range(3):  # they call each other
        for function in functions:
            given = found.get(function.name, {})
            if function.name == "__init__" or given:
                for statement in ast.walk(function):
                    if isinstance(
                        statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return
                    ):
                        called = {tail(each) for each in ast.walk(statement)} & names
                        stored = _attributes(statement, _Scope("", builds=True))
                        for name in called - {"forward"}:
                            found.setdefault(name, {}).update(
                                given or dict.fromkeys(stored)
                            )
    return found


def _nodes(node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.AST, _Scope]]:
    """All nodes of a function, each with the attributes of the statements around it."""
    yield node, scope
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert | ast.Raise | ast.FunctionDef):
            continue
        inner = scope
        if isinstance(child, ast.stmt):
            attributes = _attributes(child, scope)
            if isinstance(node, ast.For):
                attributes = scope.attributes + attributes
            inner = replace(scope, attributes=attributes)
        yield from _nodes(child, inner)


def _attributes(statement: ast.AST, scope: _Scope) -> tuple[str, ...]:
    """The attributes of the network that a statement sets, or else calls."""
    header = statement.iter if isinstance(statement, ast.For) else statement
    own = [
        node
        for node in ast.walk(header)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    ]
    stored = tuple(node.attr for node in own if isinstance(node.ctx, ast.Store))
    if scope.builds and (stored or scope.given):
        return stored or scope.given
    return tuple(dict.fromkeys(node.attr for node in own))


def _changes(node: ast.AST, scope: _Scope, offsets: list[int]) -> Iterator[Change]:
    for name, apply in RULES.items():
        for new, cause in apply(node):
            place, text = new if isinstance(new, tuple) else (node, new)
            first, last = place if isinstance(place, tuple) else (place, place)
            if not hasattr(first, "lineno"):
                continue
            if isinstance(text, ast.AST):
                text = ast.unparse(ast.fix_missing_locations(text))
                if isinstance(first, ast.BinOp | ast.IfExp | ast.Compare):
                    text = f"({text})"
            yield Change(
                name,
                offsets[first.lineno - 1] + first.col_offset,
                offsets[last.end_lineno - 1] + last.end_col_offset,
                text,
                cause,
                first.lineno,
                scope.owner,
                scope.attributes,
                scope.builds,
            )
