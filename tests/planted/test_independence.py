"""What plants mistakes shares no code with what explains them."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PLANTING = [
    path.name
    for path in sorted(FOLDER.glob("*.py"))
    if not path.name.startswith("test_")
]


@pytest.mark.parametrize("name", PLANTING)
def test_planting_knows_nothing_of_the_proof_but_what_it_compares(name):
    imported = set()
    for node in ast.walk(ast.parse((FOLDER / name).read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    of_proof = {
        module for module in imported if module.startswith("deliralike.conformance")
    }
    assert of_proof <= {"deliralike.conformance.subject"}
