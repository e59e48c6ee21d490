"""The zoo: architectures written once, found by name.

A family is imported when one of its architectures is asked for.
"""

from typing import TYPE_CHECKING

from deliralike import lazy

if TYPE_CHECKING:
    from deliralike.zoo import (
        classification,
        generative,
        multimodal,
        segmentation,
        sequences,
    )
    from deliralike.zoo.building import build
    from deliralike.zoo.conversion import convert
    from deliralike.zoo.feature_extraction import features, reset_head
    from deliralike.zoo.images import Prediction, Preprocessing, classify, preprocessing
    from deliralike.zoo.inputs import Input
    from deliralike.zoo.keymaps import KeyMap
    from deliralike.zoo.loading import WeightsReport, load
    from deliralike.zoo.model import Model
    from deliralike.zoo.published import Published, WeightsTable, weights
    from deliralike.zoo.registry import Architecture, find, list, register
    from deliralike.zoo.sequences.generation import generate
    from deliralike.zoo.summary import Outline, Stage, outline, stages
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            __name__: "classification generative multimodal segmentation sequences",
            "deliralike.zoo.building": "build",
            "deliralike.zoo.conversion": "convert",
            "deliralike.zoo.feature_extraction": "features reset_head",
            "deliralike.zoo.images": "Prediction Preprocessing classify preprocessing",
            "deliralike.zoo.inputs": "Input",
            "deliralike.zoo.keymaps": "KeyMap",
            "deliralike.zoo.loading": "WeightsReport load",
            "deliralike.zoo.model": "Model",
            "deliralike.zoo.published": "Published WeightsTable weights",
            "deliralike.zoo.registry": "Architecture find list register",
            "deliralike.zoo.sequences.generation": "generate",
            "deliralike.zoo.summary": "Outline Stage outline stages",
        },
    )

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
