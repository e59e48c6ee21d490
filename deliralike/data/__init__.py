"""Data as NumPy arrays: datasets by name, loaders, folds and transforms.

A loader gives the same batches in the same order on every backend and machine.
"""

from deliralike.data import transforms
from deliralike.data.adapters import albumentations, batchgenerators
from deliralike.data.batching import batch_count, batches, order, size
from deliralike.data.broadcast_loader import FromRoot
from deliralike.data.collate import collate
from deliralike.data.dataset import Dataset, Samples, stratified_split
from deliralike.data.distances import SignedDistances, signed_distances
from deliralike.data.folders import ImageFolder, PairedFolders, image_folder, paired_folders
from deliralike.data.folds import Fold, folds, train_validation
from deliralike.data.loader import Loader, LoaderIterator
from deliralike.data.named import known, load
from deliralike.data.sampling import (
    SequentialSampler,
    ShuffledSampler,
    StratifiedSampler,
    WeightedSampler,
)
from deliralike.data.source import Stream, Subset, subset

__all__ = [
    "Dataset",
    "Fold",
    "FromRoot",
    "ImageFolder",
    "Loader",
    "LoaderIterator",
    "PairedFolders",
    "Samples",
    "SequentialSampler",
    "ShuffledSampler",
    "SignedDistances",
    "Stream",
    "StratifiedSampler",
    "Subset",
    "WeightedSampler",
    "albumentations",
    "batch_count",
    "batches",
    "batchgenerators",
    "collate",
    "folds",
    "image_folder",
    "known",
    "load",
    "order",
    "paired_folders",
    "signed_distances",
    "size",
    "stratified_split",
    "subset",
    "train_validation",
    "transforms",
]
