"""The zoo: architectures written once, found by name."""

from deliralike.zoo import classification, generative, segmentation, sequences
from deliralike.zoo.conversion import convert
from deliralike.zoo.feature_extraction import features, reset_head
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.loading import WeightsReport, load
from deliralike.zoo.model import Model
from deliralike.zoo.registry import Architecture, Input, build, find, list, register
from deliralike.zoo.summary import Outline, Stage, outline, stages

__all__ = [
    "Architecture",
    "Input",
    "KeyMap",
    "Model",
    "Outline",
    "Stage",
    "WeightsReport",
    "build",
    "classification",
    "convert",
    "features",
    "find",
    "generative",
    "list",
    "load",
    "outline",
    "register",
    "reset_head",
    "segmentation",
    "sequences",
    "stages",
]
