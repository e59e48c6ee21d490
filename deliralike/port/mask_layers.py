"""Layers in the place of functions that draw masks or noise: ``F.dropout(x, p, self.training)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import START, NeedsHand, call_of_nn, with_statements

_ZERO = re.compile(r"0(\.0*)?")
_IN_TRAINING = re.compile(r"\(?(?P<rate>.+) if self\.training else 0(\.0*)?\)?")
_NOT_IN_EVALUATION = re.compile(
    r"\(?0(\.0*)? if not self\.training else (?P<rate>.+?)\)?"
)


class MaskLayers:
    """The layers of a class, which its ``__init__`` is to create.

    Args:
        module: The module that the class is in.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._created: dict[str, str] = {}  # how each is created, by name

    def call(self, function: str, layer: str, given: Mapping[str, str]) -> str:
        """The call of a layer in the place of a function.

        Args:
            function: The name of the function.
            layer: The name of the layer in `nn`.
            given: The arguments ``input``, ``p`` and ``training``.

        Raises:
            NeedsHand: The function does not follow the mode of the network.
        """
        x, rate = given["input"], given["p"]
        if given["training"] != "self.training":
            raise NeedsHand(
                f"{function} that does not follow self.training: a layer, nn.{layer}, in __init__",
                x,
            )
        created, args = call_of_nn(layer), f"{x}, {rate}"
        if self._is_known_in_creation(rate):
            created, args = call_of_nn(layer, rate), x
        return f"{self._shared(f'{function}_layer', created)}({args})"

    def of_attention(self, rate: str) -> str | None:
        """A layer that drops weights of attention, which follows the mode; None for no dropout.

        Args:
            rate: Such as ``self.dropout if self.training else 0.0``.

        Raises:
            NeedsHand: It is of another form.
        """
        if _ZERO.fullmatch(rate):
            return None
        form = _IN_TRAINING.fullmatch(rate) or _NOT_IN_EVALUATION.fullmatch(rate)
        p = form["rate"].strip() if form else ""
        if not p or not self._is_known_in_creation(p):
            raise NeedsHand(
                f"dropout_p={rate}: a layer, self.attention_dropout = nn.Dropout(p) in __init__, "
                "and dropout=self.attention_dropout here"
            )
        if p.endswith(".p"):  # of a layer that the class has already
            return p.removesuffix(".p")
        return self._shared("attention_dropout", call_of_nn("Dropout", p))

    def of_noise(self, layer: str) -> str:
        """A layer that draws noise: one for each place in the source."""
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", layer).lower()  # normal_noise
        return self._new(name, call_of_nn(layer))

    def _shared(self, name: str, created: str) -> str:
        """The source of a layer, the same one for all that would be created in the same way."""
        for known, text in self._created.items():
            if text == created:
                return f"self.{known}"
        return self._new(name, created)

    def _new(self, name: str, created: str) -> str:
        """The source of a new layer; a number tells it from others of its name."""
        number = sum(one.startswith(name) for one in self._created) + 1
        if number > 1:
            name = f"{name}{number}"
        self._created[name] = created
        return f"self.{name}"

    def _is_known_in_creation(self, text: str) -> bool:
        """Whether an expression has no names but those of the module, and ``self``."""
        nodes = ast.walk(ast.parse(text, mode="eval"))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return names <= {"self", *vars(self.module)}

    def add_to(self, statements: list[Any], frozen: Collection[str]) -> None:
        """Create the layers at the end of ``__init__``, which a class may have of its base.

        Parameters that match the patterns `frozen` are not trained.
        """
        lines: list[Any] = []
        for name, created in self._created.items():
            lines.append(cst.parse_statement(f"self.{name} = {created}"))
        for pattern in frozen:
            text = f'self.set_trainable("{pattern}", False)'
            lines.append(cst.parse_statement(text))
        self._created = {}
        if not lines:
            return
        if not any(m.matches(one, START) for one in statements):
            is_docstring = m.matches(statements[0], _DOCSTRING)
            statements.insert(int(is_docstring), cst.parse_statement(_OF_ITS_BASE))
        for at, one in enumerate(statements):
            if m.matches(one, START):
                statements[at] = with_statements(one, [*one.body.body, *lines])


_OF_ITS_BASE = """def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
"""

_DOCSTRING = m.SimpleStatementLine([m.Expr(m.SimpleString())])
