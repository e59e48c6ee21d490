"""Branches, checks and imports: of an installed package comes along what ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.context import Context

PASS = cst.parse_statement("pass")


class BranchRewriter(Context):
    """The part of the `Rewriter` that leaves out what was not taken."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.branches: set[cst.CSTNode] = set()  # blocks of `if`, `else` and `except`

    def visit_If(self, node: cst.If) -> bool:
        self.branches.add(node.body)
        if isinstance(node.orelse, cst.Else):
            self.branches.add(node.orelse.body)
        return not self._is_passed_check(node)

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self.branches.add(node.body)

    def leave_If(self, original: cst.If, updated: cst.If) -> Any:
        if not self._is_passed_check(original):
            return updated
        return self.left_out(original, "a check that was passed")

    def _is_passed_check(self, node: cst.If) -> bool:
        """Whether a statement complains, or is for another type of numbers, and did not run."""
        if node.orelse is not None or not self._was_passed_over(node.body):
            return False
        asked = map(self.source.meaning, m.findall(node.test, m.Attribute()))  # type: ignore[arg-type]
        return any(map(self.framework.is_dtype, asked)) or all(
            map(_complains, node.body.body)
        )

    def visit_Assert(self, node: cst.Assert) -> bool:
        return not self.source.is_installed

    def leave_Assert(self, original: cst.Assert, updated: cst.Assert) -> Any:
        if not self.source.is_installed:
            return updated
        return self.left_out(original, "a check that was passed")

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> bool:
        return not self._was_passed_over(node)

    def leave_IndentedBlock(
        self, original: cst.IndentedBlock, updated: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not self._was_passed_over(original):
            return updated if updated.body else updated.with_changes(body=[PASS])
        self.program.leave_out(self.source, original, "a branch that was not taken")
        line = self.source.begin(original.body[0])[0]
        place = f"{Path(self.source.file).name}:{line}"
        words = f"{place}: a branch that the port's inputs did not take"
        raised = cst.parse_statement(f'raise NotImplementedError("{words}")')
        return updated.with_changes(body=[raised])

    def _was_passed_over(self, block: cst.BaseSuite) -> bool:
        is_branch = block in self.branches and isinstance(block, cst.IndentedBlock)
        if not is_branch or not self.functions or not self.source.is_installed:
            return False
        path = self.functions[-1].path
        is_pythons = path.rpartition(".")[2].startswith("__")
        if is_pythons and not self.observed.phases(path):  # which an import may call
            return False
        return not self.observed.was_taken(self.source.begin(block.body[0])[0])

    def leave_ImportFrom(
        self, original: cst.ImportFrom, updated: cst.ImportFrom
    ) -> Any:
        return self._imported(original, updated)

    def leave_Import(self, original: cst.Import, updated: cst.Import) -> Any:
        return self._imported(original, updated)

    def _imported(self, original: Any, updated: Any) -> Any:
        """Within functions, too, what is ported is imported no more."""
        for one in original.names:
            name = one.evaluated_alias or one.evaluated_name
            module = self.source.imports[name.partition(".")[0]].module
            if self.framework.ports(module) or self.framework.owns(module):
                return cst.RemoveFromParent()
        return updated


def _complains(statement: cst.CSTNode) -> bool:
    warns = m.Expr(m.Call(m.Attribute(attr=m.Name("warn")) | m.Name("warn")))
    return m.matches(statement, m.SimpleStatementLine([m.Raise() | warns]))
