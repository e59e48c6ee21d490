"""The registry of published weights: data files of the publishers' own tables, and their readers.

``python -m tests.published`` writes the files anew from the installed reference libraries.
"""

from deliralike.zoo.published.entries import Published, WeightsTable
from deliralike.zoo.published.names import choose, how_to_see_all, is_name, weights

__all__ = [
    "Published",
    "WeightsTable",
    "choose",
    "how_to_see_all",
    "is_name",
    "weights",
]
