"""The zoo: architectures written once, found by name."""

from deliralike.zoo import classification, generative, segmentation, sequences
from deliralike.zoo.model import Model
from deliralike.zoo.registry import Architecture, Input, build, find, list, register
from deliralike.zoo.summary import Outline, Stage, outline, stages

__all__ = [
    "Architecture", "Input", "Model", "Outline", "Stage", "build", "classification", "find", "generative", "list",
    "outline", "register", "segmentation", "sequences", "stages",
]  # fmt: skip
