"""What XLA compiles while a test looks."""

from contextlib import contextmanager

import jax


@contextmanager
def compilations():
    """A list that gets an entry for each program that is compiled meanwhile."""
    compiled = []

    def note(event, seconds, **settings):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
