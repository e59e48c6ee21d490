"""Conventions of dropout, which scales in a comparison and drops nothing: see `masks`."""

from __future__ import annotations

from typing import Any

from deliralike.conformance.explain.convention import (
    Arguments,
    Known,
    setting,
    values,
    with_usual,
)


def _scaled(nn: Any, given: Arguments) -> Any:
    return given["x"] * (
        given["scale"] if "scale" in given else 1.0 / (1.0 - given["p"])
    )


def dropout(given: Arguments) -> Known:
    """Other scales in training, and any in evaluation."""
    p = float(given["p"])
    keep = 1.0 - p
    if not given["training"]:
        scales = {
            "on in evaluation": 1.0 / (keep or 1.0),
            "scaled in evaluation, by what is kept": keep,
        }
        return with_usual(_scaled, {"scale": 1.0}), [values("scale", scales, "dropout")]
    scales = {
        "off, or unscaled: what is kept is not divided": 1.0,
        "multiplied by what is kept": keep,
    }
    number = setting("p", (0.1, 0.5), free=True)
    return _scaled, [values("scale", scales, "dropout"), number]
