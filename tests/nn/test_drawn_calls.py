"""Every function that has PyTorch's name agrees with PyTorch's own in drawn calls, on every
backend: values, shapes, types and gradients in float64. What is refused is refused by an error of
ours, on all of them."""

from tests.nn.agreement import COMPILED, hold
from tests.nn.drawn_calls import COUNT, TABLE
from tests.nn.drawn_runs import SEED, described, drawn, outcomes, problem


def test_drawn_calls_agree_with_pytorch_or_are_refused_by_our_errors(name):
    hold(name)  # in double precision
    rows = drawn()
    if (
        name in COMPILED
    ):  # one of each function: the first of one, the second of the next
        rows = [row for at, row in enumerate(rows) if at // COUNT % COUNT == at % COUNT]
    problems = []
    for row, found in zip(rows, outcomes(name, rows), strict=True):
        function, args, kwargs, wanted = row
        if wrong := problem(function, args, kwargs, found, wanted):
            problems.append(f"{function}{described(args)} {described(kwargs)}: {wrong}")
    print(f"{len(rows)} of {len(drawn())} calls of {len(TABLE)} functions, seed {SEED}")
    assert not problems, f"{len(problems)} of {len(rows)}:\n" + "\n".join(problems)
