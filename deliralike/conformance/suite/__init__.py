"""The conformance suite: what any backend must do, as plain functions that need neither pytest nor a second framework.

Each check compares a backend with formulas in NumPy, with numbers that are published or done by hand, or with finite
differences. `run` gives a `Report`; ``pytest --pyargs deliralike.conformance --backend mine`` runs the same checks.
"""

from deliralike.conformance.suite import (  # noqa: F401 - importing them fills CHECKS
    arrays,
    chance,
    files,
    functions,
    gradients,
    layers,
    losses,
    networks,
    optimizers,
    replicas,
    windows,
    zoo,
)
from deliralike.conformance.suite.check import CHECKS, LEVELS, Check, check
from deliralike.conformance.suite.comparing import Disagreement, agree
from deliralike.conformance.suite.report import OUTCOMES, Report, Result
from deliralike.conformance.suite.running import chosen, declares, header, resolve, result_of, run

__all__ = [
    "CHECKS", "LEVELS", "OUTCOMES", "Check", "Disagreement", "Report", "Result", "agree", "check", "chosen", "declares",
    "header", "resolve", "result_of", "run",
]  # fmt: skip
