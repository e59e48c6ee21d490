"""Damaged and hostile files: what the package reads of them, in child processes with a limit on
memory and time."""
