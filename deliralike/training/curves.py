"""Pictures of runs: loss, held-out accuracy, and how far each run is from the first one.

Drawn with matplotlib's figure objects alone: no window, no backend chosen, no global setting changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from deliralike.training.history import History

# Colours that people with colour-blindness tell apart (Okabe and Ito 2008); wide, thin and dotted lines that can be
# told apart where they lie on one another.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#56B4E9", "linewidth": 5.0, "linestyle": "-"},
    {"color": "#E69F00", "linewidth": 2.6, "linestyle": "-"},
    {"color": "#000000", "linewidth": 1.3, "linestyle": (0, (4, 3))},
    {"color": "#009E73", "linewidth": 1.3, "linestyle": (0, (1, 2))},
    {"color": "#CC79A7", "linewidth": 1.0, "linestyle": (0, (6, 2, 1, 2))},
)
_MARKERS = ("o", "s", "D", "^", "v")
_TINY = 1e-17  # drawn where two runs are equal to the last bit: below what float64 can resolve


def draw_curves(runs: Mapping[str, History], path: str | Path, title: str = "", metric: str = "accuracy") -> Path:
    """Draw runs over one another and save the picture; with several runs, their differences to the first as well.

    Args:
        runs: Histories by the name that the legend shows; the first is the reference.
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        metric: The held-out metric to draw.

    Returns:
        The path of the picture.
    """
    rows = 3 if len(runs) > 1 else 2
    layout = ConstrainedLayoutEngine(hspace=0.06)
    figure = Figure(figsize=(8.0, 1.0 + 2.6 * rows), dpi=120, layout=layout, facecolor="white")
    axes = figure.subplots(rows, 1, sharex=True)
    _losses(axes[0], runs)
    _metric(axes[1], runs, metric)
    if len(runs) > 1:
        _differences(axes[2], runs)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(title, fontsize=13, fontweight="bold")
    figure.savefig(path)
    return Path(path)


def _losses(axis: Any, runs: Mapping[str, History]) -> None:
    _prepare(axis, "training loss, every step")
    for index, (name, history) in enumerate(runs.items()):
        axis.plot(history.losses, label=name, zorder=2 + index, **_STYLES[index % len(_STYLES)])
    if all((history.losses > 0).all() for history in runs.values()):
        axis.set_yscale("log")
    if len(runs) > 1:
        axis.legend(frameon=False, loc="upper right", handlelength=3.0)


def _metric(axis: Any, runs: Mapping[str, History], metric: str) -> None:
    _prepare(axis, f"held-out {metric}, every epoch")
    for index, (name, history) in enumerate(runs.items()):
        steps = [epoch.steps - 1 for epoch in history.epochs if metric in epoch.held_out]
        style = _STYLES[index % len(_STYLES)]
        marker = {"marker": _MARKERS[index % len(_MARKERS)], "markersize": 3.5 + 1.2 * style["linewidth"]}
        axis.plot(steps, history.held_out(metric), label=name, zorder=2 + index, **style, **marker)
    _note_last(axis, next(iter(runs.values())), metric)
    axis.margins(y=0.15)


def _note_last(axis: Any, history: History, metric: str) -> None:
    """Write the first run's last value beside its point."""
    values = history.held_out(metric)
    if len(values):
        position = (history.epochs[-1].steps - 1, values[-1])
        axis.annotate(f"{values[-1]:.4g}", position, (0, -16), textcoords="offset points", ha="center", fontsize=9)


def _differences(axis: Any, runs: Mapping[str, History]) -> None:
    (first, reference), *others = runs.items()
    _prepare(axis, f"relative difference of the loss to {first} (at 1e-17: the same to the last bit)")
    for index, (name, history) in enumerate(others, start=1):
        style = {**_STYLES[index % len(_STYLES)], "linestyle": "-", "linewidth": 1.2}
        axis.plot(_relative(reference.losses, history.losses), label=name, **style)
    axis.axhline(np.finfo(np.float64).eps, color="0.45", linewidth=0.8, linestyle=":", label="float64 epsilon")
    axis.set_yscale("log")
    axis.yaxis.set_minor_locator(NullLocator())
    axis.legend(frameon=False, loc="upper left", ncols=len(runs), handlelength=2.0)
    axis.margins(y=0.25)


def _relative(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    length = min(len(reference), len(other))
    difference = np.abs(other[:length] - reference[:length]) / np.maximum(np.abs(reference[:length]), _TINY)
    return np.maximum(difference, _TINY)


def _prepare(axis: Any, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5)
    axis.grid(True, color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
