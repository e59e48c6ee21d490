"""Repositories of the Hub that the registry does not have: what the files in them say.

timm writes ``config.json`` with ``pretrained_cfg``, transformers ``config.json`` and
``preprocessor_config.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from deliralike.errors import DownloadError, WeightFileError
from deliralike.weights.downloads import HubFile
from deliralike.zoo.images import Preprocessing
from deliralike.zoo.published.entries import Published

_CONFIG = "config.json"
_PREPROCESSOR = "preprocessor_config.json"
# our setting: that of transformers
_TRANSFORMERS_SETTINGS = {
    "image_size": "image_size",
    "eps": "layer_norm_eps",
    "hidden_act": "hidden_act",
}
_INTERPOLATIONS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def described(
    architecture: str, name: str, file: HubFile, known: Collection[str] = ()
) -> Published:
    """Return an entry for a repository, as far as the files in it describe the weights.

    Args:
        known: The settings of the architecture, of which the described ones are set.
    """
    config = _read(file, _CONFIG)
    published = config.get("pretrained_cfg")
    preprocessing: Preprocessing | None
    if published:
        stated = {
            "num_classes": config.get("num_classes", published.get("num_classes"))
        }
        stated["image_size"] = published["input_size"][-1]
        preprocessing = of_timm(published)
        labels = tuple(config.get("label_names") or published.get("label_names") or ())
    else:
        labels = _labels(config)
        vision = config.get("vision_config") or {}  # of networks over pictures and text
        stated = {"num_classes": len(labels) or None}
        for setting, key in _TRANSFORMERS_SETTINGS.items():
            stated[setting] = vision.get(key, config.get(key))
        preprocessing = of_transformers(_read(file, _PREPROCESSOR))
    settings = []
    for key, value in stated.items():
        if key in known and isinstance(value, int | float | str):
            settings.append((key, value))
    return Published(
        architecture,
        name,
        file,
        classes=stated["num_classes"],
        labels=labels,
        preprocessing=preprocessing,
        settings=tuple(settings),
    )


def of_timm(config: Mapping[str, Any]) -> Preprocessing:
    """Return the preparation that timm's settings of weights describe."""
    side = config["input_size"][-1]
    scaled = math.floor(side / (config.get("crop_pct") or 0.875))
    is_squashed = config.get("crop_mode") == "squash"
    return Preprocessing(
        (scaled, scaled) if is_squashed else scaled,
        side,
        config.get("interpolation") or "bicubic",
        tuple(config["mean"]),
        tuple(config["std"]),
    )


def of_transformers(config: Mapping[str, Any]) -> Preprocessing | None:
    """Return the preparation that an image processor of transformers describes, if it does."""
    if "image_mean" not in config:
        return None
    size = config.get("size") if config.get("do_resize", True) else None
    resize: int | tuple[int, int] | None
    if isinstance(size, Mapping):
        resize = size.get("shortest_edge")
        if resize is None:
            resize = (size["height"], size["width"])
    elif size is None or config.get("do_center_crop"):
        resize = size
    else:  # older files have one number for both sides
        resize = (size, size)
    crop = config.get("crop_size") if config.get("do_center_crop") else None
    if isinstance(crop, Mapping):
        crop = crop["height"]
    interpolation = _INTERPOLATIONS.get(config.get("resample", 2), "bilinear")
    mean = tuple(config["image_mean"])
    return Preprocessing(resize, crop, interpolation, mean, tuple(config["image_std"]))


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label") or {}
    return tuple(labels[key] for key in sorted(labels, key=int))


def _read(file: HubFile, filename: str) -> dict[str, Any]:
    """Return a file of settings in a repository; empty where it has none."""
    try:
        path = replace(file, filenames=(filename,)).fetch()
    except DownloadError:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightFileError(f"{path} of {file} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}
