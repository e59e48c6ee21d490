"""The conformance suite: the duties of any backend, as plain functions.

They need neither pytest nor a second framework.

Each check compares a backend with formulas and the neutral update rules in NumPy, with numbers done
by hand, with finite differences, or, where it replaces what `nn` has written once, with that. `run`
gives a `Report`; ``pytest --pyargs deliralike.conformance --backend mine`` runs the same checks.
"""

from deliralike.conformance.suite import (
    arrays,  # noqa: F401
    chance,  # noqa: F401
    files,  # noqa: F401
    functions,  # noqa: F401
    gradients,  # noqa: F401
    layers,  # noqa: F401
    losses,  # noqa: F401
    networks,  # noqa: F401
    optimizers,  # noqa: F401
    replicas,  # noqa: F401
    windows,  # noqa: F401
)
from deliralike.conformance.suite.check import CHECKS, LEVELS, Check, check
from deliralike.conformance.suite.comparing import Disagreement, agree
from deliralike.conformance.suite.report import OUTCOMES, Report, Result
from deliralike.conformance.suite.running import (
    chosen,
    declares,
    header,
    resolve,
    result_of,
    run,
)

__all__ = [
    "CHECKS",
    "LEVELS",
    "OUTCOMES",
    "Check",
    "Disagreement",
    "Report",
    "Result",
    "agree",
    "check",
    "chosen",
    "declares",
    "header",
    "resolve",
    "result_of",
    "run",
]
