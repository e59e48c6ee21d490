"""Data as NumPy arrays: datasets by name, loaders, folds and transforms.

A loader gives the same batches in the same order on every backend and machine.
"""

from deliralike.data import nifti, transforms
from deliralike.data.array_guessing import as_dataset
from deliralike.data.batching import batch_count, order, size
from deliralike.data.collate import collate
from deliralike.data.dataset import Dataset, Samples, stratified_split
from deliralike.data.folders import ImageFolder, image_folder
from deliralike.data.folds import Fold, folds
from deliralike.data.foreign import Batches, loader_of
from deliralike.data.loader import Loader
from deliralike.data.mixing import CutMix, Mixup
from deliralike.data.named import known, load
from deliralike.data.nifti import (
    NiftiFiles,
    Volume,
    nifti_files,
    read_nifti,
    write_nifti,
)
from deliralike.data.sampling import (
    RepeatedSampler,
    SequentialSampler,
    ShuffledSampler,
)
from deliralike.data.source import Subset, subset
from deliralike.data.transforms import CropByPosNegLabel

__all__ = [
    "Batches",
    "CropByPosNegLabel",
    "CutMix",
    "Dataset",
    "Fold",
    "ImageFolder",
    "Loader",
    "Mixup",
    "NiftiFiles",
    "RepeatedSampler",
    "Samples",
    "SequentialSampler",
    "ShuffledSampler",
    "Subset",
    "Volume",
    "as_dataset",
    "batch_count",
    "collate",
    "folds",
    "image_folder",
    "known",
    "load",
    "loader_of",
    "nifti",
    "nifti_files",
    "order",
    "read_nifti",
    "size",
    "stratified_split",
    "subset",
    "transforms",
    "write_nifti",
]
