"""The options of the conformance suite, registered with pytest.

They serve ``pytest --pyargs deliralike.conformance --backend NAME``.

A module of its own, since pytest imports it in every run of an environment that deliralike is
installed in: all other runs neither import deliralike nor see an option of it.
"""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, args):
    """Add the suite's options to a command that asks for the suite."""
    if any(arg.startswith("deliralike.conformance") for arg in args):
        from deliralike.conformance.suite import plugin  # noqa: PLC0415

        early_config.pluginmanager.register(plugin, "deliralike-conformance")
