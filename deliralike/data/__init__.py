"""Data as NumPy arrays: datasets by name, and seeded batches that come in the same order on every backend."""

from deliralike.data.batching import batch_count, batches, order, size
from deliralike.data.dataset import Dataset, Samples, stratified_split
from deliralike.data.named import known, load

__all__ = ["Dataset", "Samples", "batch_count", "batches", "known", "load", "order", "size", "stratified_split"]
