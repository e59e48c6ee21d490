"""The zoo: architectures written once, found by name."""

from deliralike.zoo import classification, generative, multimodal, segmentation, sequences
from deliralike.zoo.conversion import convert
from deliralike.zoo.feature_extraction import features, reset_head
from deliralike.zoo.images import Prediction, Preprocessing, classify, preprocessing
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.loading import WeightsReport, load
from deliralike.zoo.model import Model
from deliralike.zoo.published import Published, WeightsTable, weights
from deliralike.zoo.registry import Architecture, Input, build, find, list, register
from deliralike.zoo.sequences.generation import generate
from deliralike.zoo.summary import Outline, Stage, outline, stages

__all__ = [
    "Architecture",
    "Input",
    "KeyMap",
    "Model",
    "Outline",
    "Prediction",
    "Preprocessing",
    "Published",
    "Stage",
    "WeightsReport",
    "WeightsTable",
    "build",
    "classification",
    "classify",
    "convert",
    "features",
    "find",
    "generate",
    "generative",
    "list",
    "load",
    "multimodal",
    "outline",
    "preprocessing",
    "register",
    "reset_head",
    "segmentation",
    "sequences",
    "stages",
    "weights",
]
