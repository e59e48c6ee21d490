"""The command line: one subcommand a file. What a subcommand needs is imported when it runs, so ``--help`` is quick."""

from deliralike.cli.app import app, main

__all__ = ["app", "main"]
