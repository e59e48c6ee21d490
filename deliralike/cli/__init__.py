"""The command line, with one subcommand in each file.

The modules that a subcommand needs are imported when it runs, so ``--help`` is quick.
"""

from deliralike.cli.app import app, main

__all__ = ["app", "main"]
