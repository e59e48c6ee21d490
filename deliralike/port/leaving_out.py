"""What does not come along: what did not run, checks that were passed, start values, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.context import Context
from deliralike.port.observing import FORWARD
from deliralike.port.patterns import pattern

PASS = cst.parse_statement("pass")
_STATEMENTS = (cst.Expr, cst.Assign, cst.AugAssign, cst.For, cst.If, cst.With)
_WARNS = m.Expr(pattern("MODULE.warn(...)") | pattern("warn(...)"))
_WRITES_WEIGHTS = (
    "a parameter that is written over while the network computes: compute with the new value, "
    "weight = self.weight * self.mask, and give it to a function of nn, nn.conv2d(x, weight); "
    "whether it is trained is said in __init__, by self.set_trainable('weight', False)"
)
_UNKNOWN_BRANCH = (
    "a branch that the port's inputs did not take, and no proof reaches: methods of arrays in it "
    "stand as they are, x.view(...); give inputs that take it"
)
_COMPLAINS = m.SimpleStatementLine([m.Raise() | _WARNS])


class LeavingOut(Context):
    """The part of the `Rewriter` that leaves out what a port does not need."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Pass by what is left out, or stands as it is."""
        why = self._why_left_out(node)
        if why is not None:
            self.reasons[node] = why
        if node in self.reasons or node in self.passed_by:
            return False
        return super().on_visit(node)

    def on_leave(self, original: Any, updated: Any) -> Any:
        """Leave out what has a reason."""
        if original in self.passed_by:
            return updated
        if original in self.reasons:
            return self.left_out(original, self.reasons[original])
        return super().on_leave(original, updated)

    def left_out(self, node: cst.CSTNode, why: str) -> cst.RemovalSentinel:
        """Leave out a node, and say so."""
        self.program.leave_out(self.source, node, why)
        return cst.RemoveFromParent()

    def _why_left_out(self, node: cst.CSTNode) -> str | None:
        """Why a node does not come along; None where it does."""
        if isinstance(node, cst.FunctionDef):
            return self._why_not_a_method(node)
        if isinstance(node, _STATEMENTS) and self._sets_start_values(node):
            return "start values"
        if isinstance(node, cst.Expr):
            return self._why_without_effect(node)
        is_assertion = isinstance(node, cst.Assert) and self.source.is_installed
        if is_assertion or (isinstance(node, cst.If) and self._is_passed_check(node)):
            return "a check that was passed"
        return None

    def _sets_start_values(self, node: cst.CSTNode) -> bool:
        """Whether a statement only sets start values; in forward it changes the network."""
        if not self.functions or not self.start_code.is_all(node):
            return False
        written = self.start_code.written(node)
        if self.in_construction or not written:
            return True
        if isinstance(node, cst.BaseSmallStatement) and any(written):
            self.program.needs_hand(self.where(node), _WRITES_WEIGHTS)
        return False

    def _why_without_effect(self, statement: Any) -> str | None:
        if not m.matches(statement, m.Expr(m.Call())):
            return None
        name = self.name_of(statement.value.func)
        is_idle = name in self.framework.without_effect
        return f"{name}, without an effect here" if is_idle else None

    # Methods
    # ---------------------------------------------------------------------------------------------

    def _why_not_a_method(self, node: cst.FunctionDef) -> str | None:
        """Why a method does not come along: it was not called, or only sets start values.

        Those of classes of one's own that are no networks stay.
        """
        if len(self.path) != 1 or self.functions:
            return None
        name, is_installed = node.name.value, self.source.is_installed
        path = f"{self.class_name}.{name}"
        phases = self.observed.phases(path)
        is_network = self.original.is_network(self.cls)
        if not phases:
            is_pythons = name.startswith("__") and name != "__call__"
            stays = not is_network and (is_pythons or not is_installed)
            return None if stays else f"{path} was not called"
        is_hub = is_installed and name in ("__new__", "__getattr__")
        blocks = self.original.blocks_of(self.cls)
        is_idle = name == "train" and all(map(self.framework.follows_mode, blocks))
        is_start = self.start_code.is_all(node)
        if FORWARD in phases and self.start_code.written(node):
            is_start = False  # what `forward` calls changes the network
        if is_network and (is_hub or is_idle or is_start):
            return f"{path} has no effect here"
        return None

    # Branches and checks: of an installed package comes along what ran
    # ---------------------------------------------------------------------------------------------

    def _is_passed_check(self, node: cst.If) -> bool:
        """Whether a statement complains, or is for another type of numbers, and did not run."""
        if node.orelse is not None:
            return False
        names: Any = m.findall(node.test, m.Attribute())
        asked = map(self.source.meaning, names)
        if any(map(self.framework.is_half_type, asked)) and not self._was_taken(
            node.body
        ):
            return True  # a network computes in one type, whose rounding is not ported
        if self._was_run(node.body):
            return False
        if any(self.framework.is_dtype(self.source.meaning(name)) for name in names):
            return True
        return all(m.matches(one, _COMPLAINS) for one in node.body.body)

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> bool:
        return not self.source.is_branch(node) or self._was_run(node)

    def leave_IndentedBlock(
        self, original: cst.IndentedBlock, updated: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not self.source.is_branch(original) or self._was_run(original):
            if self._is_unknown(original):
                self.program.specialise(self.where(original.body[0]), _UNKNOWN_BRANCH)
            return updated if updated.body else updated.with_changes(body=[PASS])
        self.program.leave_out(self.source, original, "a branch that was not taken")
        line = self.source.begin(original.body[0])[0]
        place = f"{Path(self.source.file).name}:{line}"
        words = f"{place}: a branch that the port's inputs did not take"
        raised = cst.parse_statement(f'raise NotImplementedError("{words}")')
        return updated.with_changes(body=[raised])

    def _is_unknown(self, block: cst.IndentedBlock) -> bool:
        """Whether what may be methods of arrays stand in a branch that was not taken."""
        is_in_forward = bool(self.functions) and not self.in_construction
        is_run = is_in_forward and self.observed.phases(self.functions[-1].path)
        is_branch = self.source.is_branch(block)
        if not is_run or not is_branch or self._was_taken(block):
            return False
        methods: Any = m.findall(block, m.Call(m.Attribute(attr=m.Name())))
        names = {one.func.attr.value for one in methods}
        return bool(names & self.framework.methods.keys())

    def _was_run(self, branch: cst.BaseSuite) -> bool:
        """Whether a branch ran, or may run elsewhere."""
        is_block = isinstance(branch, cst.IndentedBlock)
        if not is_block or not self.functions or not self.source.is_installed:
            return True
        path = self.functions[-1].path
        is_pythons = path.rpartition(".")[2].startswith("__")
        if is_pythons and not self.observed.phases(path):  # which an import may call
            return True
        return self._was_taken(branch)

    def _was_taken(self, branch: Any) -> bool:
        return self.observed.was_taken(self.source.begin(branch.body[0])[0])

    # Imports
    # ---------------------------------------------------------------------------------------------

    def leave_Import(self, original: Any, updated: Any) -> Any:
        """Within functions, too, what is ported is imported no more."""
        for one in original.names:
            name = one.evaluated_alias or one.evaluated_name
            module = self.source.imports[name.partition(".")[0]].module
            if self.framework.ports(module) or self.framework.owns(module):
                return cst.RemoveFromParent()
        return updated

    def leave_ImportFrom(self, original: Any, updated: Any) -> Any:
        return self.leave_Import(original, updated)
