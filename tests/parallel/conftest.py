"""What the tests of replicas share: they are bounded in time, so that a fault cannot hang the
suite."""

import contextvars
import threading

import pytest

SECONDS = 120.0


def _within(function, *args, seconds=SECONDS):
    """What a function gives, or raises, in a thread that is not waited for longer than
    `seconds`."""
    outcome = {}

    def run():
        try:
            outcome["result"] = function(*args)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(run,), daemon=True
    )
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"still running after {seconds} s"
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


@pytest.fixture
def within():
    """``within(function, *args)``: the function's result, within two minutes."""
    return _within
