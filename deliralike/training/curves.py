"""Pictures of runs: loss, metrics on validation data, learning rate, and how far each run is from the first one.

Drawn with matplotlib's figure objects alone: no window, no backend chosen, no global setting changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator, NullLocator

from deliralike.training.history import History, Step

# Colours that people with colour-blindness tell apart (Okabe and Ito 2008); wide, thin and dotted lines that can be
# told apart where they lie on one another.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#56B4E9", "linewidth": 5.0, "linestyle": "-"},
    {"color": "#E69F00", "linewidth": 2.6, "linestyle": "-"},
    {"color": "#000000", "linewidth": 1.3, "linestyle": (0, (4, 3))},
    {"color": "#009E73", "linewidth": 1.3, "linestyle": (0, (1, 2))},
    {"color": "#CC79A7", "linewidth": 1.0, "linestyle": (0, (6, 2, 1, 2))},
)
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_ENDS = ("low", "high")
_MARKERS = ("o", "s", "D", "^", "v")
_TINY = 1e-17  # drawn where two runs are equal to the last bit: below what float64 can resolve


def draw_curves(
    runs: Mapping[str, History], path: str | Path, title: str = "", metrics: Sequence[str] | None = None
) -> Path:
    """Draw runs over one another and save the picture: loss, each metric on validation data, learning rate.

    A metric's confidence interval (``NAME/low`` and ``NAME/high``) is a band about it. Of a single run, metrics of one
    family (``dice/1``, ``dice/2``) share a panel; of several runs, their differences to the first are drawn as well.

    Args:
        runs: Histories by the name that the legend shows; the first is the reference.
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        metrics: Which metrics to draw; all that there are when not given.

    Returns:
        The path of the picture.
    """
    runs = {literal(name): history for name, history in runs.items()}
    names = _metrics(runs) if metrics is None else list(metrics)
    panels: list[Callable[[Any], None]] = [partial(_losses, runs=runs)]
    panels += [partial(_metric, runs=runs, names=family) for family in _families(names, alone=len(runs) > 1)]
    panels += [partial(_rates, runs=runs)] if _has_changing_rates(runs) else []
    panels += [partial(_differences, runs=runs)] if len(runs) > 1 else []
    columns = 1 if len(panels) <= 4 else 2 if len(panels) <= 12 else 3
    figure, axes = _grid(-(-len(panels) // columns), columns, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis)
    figure.suptitle(literal(title), fontsize=13, fontweight="bold")
    figure.savefig(path)
    return Path(path)


def _grid(rows: int, columns: int, count: int) -> tuple[Figure, list[Any]]:
    """A figure with `count` axes, column by column; the lowest of each column says what runs along it."""
    layout = ConstrainedLayoutEngine(hspace=0.06)
    size = (8.0 if columns == 1 else 6.0 * columns, 1.0 + 2.6 * rows)
    figure = Figure(figsize=size, dpi=120, layout=layout, facecolor="white")
    axes = list(figure.subplots(rows, columns, sharex=True, squeeze=False).T.flat)
    for axis in axes[count:]:
        axis.remove()
    for index, axis in enumerate(axes[:count]):
        if (index + 1) % rows == 0 or index == count - 1:
            axis.set_xlabel("step")
            axis.tick_params(labelbottom=True)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes[:count]


# Panels ----------------------------------------------------------------------------------------------------------


def _losses(axis: Any, runs: Mapping[str, History]) -> None:
    _prepare(axis, "training loss, every step")
    for index, (name, history) in enumerate(runs.items()):
        _loss(axis, name, history, {"zorder": 2 + index, **_STYLES[index % len(_STYLES)]}, smooth=len(runs) == 1)
    finite = [history.losses[np.isfinite(history.losses)] for history in runs.values()]
    if all((losses > 0).all() and len(losses) for losses in finite):
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(1.5, 0.5)))
    if axis.get_legend_handles_labels()[0] and (len(runs) > 1 or _is_long(next(iter(runs.values())))):
        axis.legend(frameon=False, loc="upper right", handlelength=3.0, fontsize=9)


def literal(text: str) -> str:
    r"""Text for a picture as it is, where matplotlib would take what stands between two dollars for a formula.

    Example:
        >>> literal("$x$")
        '\\$x\\$'
    """
    return text.replace("$", r"\$")


def _loss(axis: Any, name: str, history: History, style: Mapping[str, Any], smooth: bool) -> None:
    """One line; of a long run alone, a pale one and its moving median."""
    steps = [step.step for step in history.steps]
    if not smooth:
        axis.plot(steps, history.losses, label=name, **style)
    elif not _is_long(history):
        axis.plot(steps, history.losses, color="#0072B2", linewidth=1.6)
    else:
        width = max(3, len(steps) // 50)
        axis.plot(steps, history.losses, color="#56B4E9", linewidth=0.7, alpha=0.7, label="each step")
        middles = np.median(np.lib.stride_tricks.sliding_window_view(history.losses, width), axis=1)
        axis.plot(steps[width - 1 :], middles, color="#0072B2", linewidth=1.6, label=f"median of {width} steps")


def _is_long(history: History) -> bool:
    return len(history.steps) > 150


def _metric(axis: Any, runs: Mapping[str, History], names: Sequence[str]) -> None:
    """One metric of each run, or several of one run."""
    title = names[0] if len(names) == 1 else names[0].rpartition("/")[0]
    _prepare(axis, f"validation: {title}, every epoch")
    lines = [(label, history, name) for label, history in runs.items() for name in names]
    for index, (label, history, name) in enumerate(lines):
        style: dict[str, Any] = (
            dict(_STYLES[index % len(_STYLES)]) if len(runs) > 1 else {"color": _COLOURS[index % len(_COLOURS)]}
        )
        style |= {"marker": _MARKERS[index % len(_MARKERS)], "zorder": 2 + index}
        style |= {"markersize": 3.5 + 1.2 * float(style.get("linewidth", 0.0))}
        axis.plot(*_points(history, name), label=label if len(runs) > 1 else literal(name.rpartition("/")[2]), **style)
        _band(axis, history, name, style["color"])
    if len(names) > 1:
        axis.legend(frameon=False, fontsize=9, ncols=-(-len(names) // 6))
    else:
        _note_last(axis, lines[0][1], names[0])
    axis.margins(y=0.15)


def _points(history: History, metric: str) -> tuple[list[int], list[float]]:
    found = [(epoch.steps - 1, float(epoch.held_out[metric])) for epoch in history.epochs if metric in epoch.held_out]
    return [step for step, _ in found], [value for _, value in found]


def _band(axis: Any, history: History, metric: str, colour: str) -> None:
    (steps, low), (_, high) = (_points(history, f"{metric}/{end}") for end in _ENDS)
    if steps and len(low) == len(high):
        axis.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def _note_last(axis: Any, history: History, metric: str) -> None:
    """Write the first run's last value beside its point."""
    steps, values = _points(history, metric)
    if steps and np.isfinite(values[-1]):
        place = {"textcoords": "offset points", "ha": "right", "fontsize": 9}
        axis.annotate(f"{values[-1]:.4g}", (steps[-1], values[-1]), (0, -16), **place)


def _rates(axis: Any, runs: Mapping[str, History]) -> None:
    _prepare(axis, "learning rate, every step")
    for index, (label, history) in enumerate(runs.items()):
        for name in _optimizers(history):
            shown = ", ".join(part for part in (label if len(runs) > 1 else "", name) if part)
            style = _STYLES[index % len(_STYLES)] if len(runs) > 1 else {}
            axis.plot([step.step for step in history.steps], [_rate(step, name) for step in history.steps],
                      label=shown or "lr", **style)  # fmt: skip
    if len(axis.lines) > 1:
        axis.legend(frameon=False, fontsize=9)


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


# What there is ---------------------------------------------------------------------------------------------------


def _metrics(runs: Mapping[str, History]) -> list[str]:
    """Every metric of any run that can be drawn, in order of appearance; the ends of intervals are part of another."""
    found = dict.fromkeys(name for run in runs.values() for epoch in run.epochs for name in epoch.held_out)
    ends = {f"{name}/{end}" for name in found for end in _ENDS if all(f"{name}/{each}" in found for each in _ENDS)}
    return [name for name in found if name not in ends]


def _families(names: Sequence[str], alone: bool) -> list[list[str]]:
    """Metrics that share a panel: those with the same words before the last slash."""
    found: dict[str, list[str]] = {}
    for name in names:
        family = name.rpartition("/")[0]
        found.setdefault(name if alone or not family else f"{family}/", []).append(name)
    return list(found.values())


def _optimizers(history: History) -> list[str]:
    rate = next((step.lr for step in history.steps if step.lr is not None), None)
    return [] if rate is None else list(rate) if isinstance(rate, Mapping) else [""]


def _rate(step: Step, name: str) -> float:
    rate = step.lr[name] if isinstance(step.lr, Mapping) else step.lr
    return float("nan") if rate is None else rate


def _has_changing_rates(runs: Mapping[str, History]) -> bool:
    return any(
        len({_rate(step, name) for step in history.steps}) > 1
        for history in runs.values()
        for name in _optimizers(history)
    )


def _prepare(axis: Any, title: str) -> None:
    axis.set_title(literal(title), loc="left", fontsize=10.5)
    axis.grid(True, color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
