"""A process that was forked after JAX had computed says so at once, where it would hang."""

import subprocess
import sys

import pytest

from tests.conftest import BACKENDS

if "jax" not in BACKENDS:
    pytest.skip("forks a process that has computed on JAX", allow_module_level=True)

PROGRAM = """
import os, sys, warnings
import numpy as np
from deliralike import rules, training, zoo

warnings.simplefilter("ignore")  # JAX's own, about the fork
jax = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
x, y = np.ones((4, 3), np.float32), np.zeros(4, np.int64)
trainer = training.Trainer(jax, rules.rule("sgd", lr=0.1))
trainer.fit((x, y))
uses = [
    lambda: jax(jax.backend.array(x)),
    lambda: trainer.fit((x, y)),
    lambda: list(trainer.predict(x)),
    lambda: jax.load_neutral_state(jax.neutral_state()),
    lambda: zoo.build("mlp", backend="jax"),
]
if os.fork() == 0:
    for use in uses:
        try:
            use()
        except NotImplementedError as error:
            print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
trainer.fit((x, y))
print("the first process goes on")
"""


def test_a_process_forked_after_jax_computed_is_told_how_to_start_one():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    *told, last = done.stdout.splitlines()
    assert last == "the first process goes on"
    assert len(told) == 5, done.stdout + done.stderr
    for line in told:
        assert (
            line.startswith("CapabilityError process ")
            and "get_context('spawn')" in line
        )
