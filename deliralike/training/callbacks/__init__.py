"""What watches a run: one callback a file."""

from deliralike.training.callbacks.callback import Callback
from deliralike.training.callbacks.json_lines import JsonLines

__all__ = ["Callback", "JsonLines"]
