"""What errors say that all of the processes have at the same place, and after which they may go
on."""

import importlib


def said(processes, *cases):
    """For each function and its arguments, the error that it ends with; no error is none."""
    return [_said(processes, *case) for case in cases]


def _said(processes, function, *arguments):
    module, name = function.split(":")
    try:
        getattr(importlib.import_module(module), name)(processes, *arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
