"""Pictures of runs: loss, metrics, learning rate, and the differences to the first run.

They are drawn with matplotlib's figure objects alone: no window is opened, no backend chosen, no
global setting changed.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator, NullLocator

from deliralike.training.history import History, Step

# Colours that people with colour-blindness tell apart (Okabe and Ito 2008); wide, thin and dotted
# lines that can be distinguished where they coincide.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#56B4E9", "linewidth": 5.0, "linestyle": "-"},
    {"color": "#E69F00", "linewidth": 2.6, "linestyle": "-"},
    {"color": "#000000", "linewidth": 1.3, "linestyle": (0, (4, 3))},
    {"color": "#009E73", "linewidth": 1.3, "linestyle": (0, (1, 2))},
    {"color": "#CC79A7", "linewidth": 1.0, "linestyle": (0, (6, 2, 1, 2))},
)
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "D", "^", "v")
_TINY = 1e-17  # drawn where two runs are equal to the last bit: below what float64 can resolve


def draw_curves(
    runs: Mapping[str, History],
    path: str | Path,
    title: str = "",
    metrics: Sequence[str] | None = None,
    *,
    with_differences: bool = True,
) -> Path:
    """Draw the loss, the metrics and the learning rate of runs over one another; save the picture.

    The metrics are those on validation data. A metric's confidence interval (``NAME/low`` and
    ``NAME/high``) is a band about it. Of a single run, metrics of one family (``dice/1``,
    ``dice/2``) share a panel.

    Args:
        runs: Histories by the name that the legend shows; the first is the reference.
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        metrics: The metrics to draw; all metrics when not given.
        with_differences: Whether to draw the differences of several runs to the first, too.

    Returns:
        The path of the picture.
    """
    figure_of(runs, title, metrics, with_differences).savefig(path)
    return Path(path)


def figure_of(
    runs: Mapping[str, History],
    title: str = "",
    metrics: Sequence[str] | None = None,
    with_differences: bool = True,
) -> Figure:
    """Return the picture that `draw_curves` saves, as a figure."""
    runs = {literal(name): history for name, history in runs.items()}
    panels = _panels(runs, metrics)
    if with_differences and len(runs) > 1:
        panels.append(partial(_differences, runs=runs))
    columns = _columns(len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = _grid(rows, columns, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis)
    figure.suptitle(literal(title), fontsize=13, fontweight="bold")
    return figure


class _Picture(Figure):
    """A figure that a notebook shows, whether or not matplotlib's interactive part is loaded."""

    def _repr_png_(self) -> bytes:
        """Return the file that a notebook shows."""
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def _panels(
    runs: Mapping[str, History], metrics: Sequence[str] | None
) -> list[Callable[[Any], None]]:
    """Return the functions that draw the panels."""
    names = _metrics(runs) if metrics is None else list(metrics)
    panels: list[Callable[[Any], None]] = [partial(_losses, runs=runs)]
    for family in _families(names, alone=len(runs) > 1):
        panels.append(partial(_metric, runs=runs, names=family))
    if _has_changing_rates(runs):
        panels.append(partial(_rates, runs=runs))
    return panels


def _columns(panels: int) -> int:
    if panels <= 4:
        return 1
    if panels <= 12:
        return 2
    return 3


def _grid(rows: int, columns: int, count: int) -> tuple[_Picture, list[Any]]:
    """Return a figure with `count` axes, column by column; the lowest ones have a label."""
    layout = ConstrainedLayoutEngine(hspace=0.06)
    width = 8.0 if columns == 1 else 6.0 * columns
    height = 1.0 + 2.6 * rows
    figure = _Picture(
        figsize=(width, height), dpi=120, layout=layout, facecolor="white"
    )
    axes = list(figure.subplots(rows, columns, sharex=True, squeeze=False).T.flat)
    for axis in axes[count:]:
        axis.remove()
    for index, axis in enumerate(axes[:count]):
        if (index + 1) % rows == 0 or index == count - 1:
            axis.set_xlabel("step")
            axis.tick_params(labelbottom=True)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes[:count]


# Panels -------------------------------------------------------------------------------------------


def _losses(axis: Any, runs: Mapping[str, History]) -> None:
    _prepare(axis, "training loss, every step")
    for index, (name, history) in enumerate(runs.items()):
        style = {"zorder": 2 + index, **_STYLES[index % len(_STYLES)]}
        _loss(axis, name, history, style, smooth=len(runs) == 1)
    if all(_is_positive(history) for history in runs.values()):
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(
            LogFormatterSciNotation(minor_thresholds=(1.5, 0.5))
        )
    labelled_lines, _ = axis.get_legend_handles_labels()
    if labelled_lines and (len(runs) > 1 or any(map(_is_long, runs.values()))):
        axis.legend(frameon=False, loc="upper right", handlelength=3.0, fontsize=9)


def _is_positive(history: History) -> bool:
    finite = history.losses[np.isfinite(history.losses)]
    return len(finite) > 0 and bool((finite > 0).all())


def literal(text: str) -> str:
    r"""Return text without formulas, which matplotlib would see between two dollars.

    Example:
        >>> literal("$x$")
        '\\$x\\$'
    """
    return text.replace("$", r"\$")


def _loss(
    axis: Any, name: str, history: History, style: Mapping[str, Any], smooth: bool
) -> None:
    """Draw one line; of a long run alone, a pale one and its moving median."""
    steps = [step.step for step in history.steps]
    losses = history.losses
    if not smooth:
        axis.plot(steps, losses, label=name, **style)
    elif not _is_long(history):
        axis.plot(steps, losses, color="#0072B2", linewidth=1.6)
    else:
        axis.plot(
            steps, losses, color="#56B4E9", linewidth=0.7, alpha=0.7, label="each step"
        )
        width = max(3, len(steps) // 50)
        windows = np.lib.stride_tricks.sliding_window_view(losses, width)
        medians = np.median(windows, axis=1)
        ends = steps[width - 1 :]
        label = f"median of {width} steps"
        axis.plot(ends, medians, color="#0072B2", linewidth=1.6, label=label)


def _is_long(history: History) -> bool:
    return len(history.steps) > 150


def _metric(axis: Any, runs: Mapping[str, History], names: Sequence[str]) -> None:
    """Draw one metric of each run, or several of one run."""
    is_single_run = len(runs) == 1
    title = names[0]
    if len(names) > 1:
        title = title.rpartition("/")[0]
    _prepare(axis, f"validation: {title}, every epoch")
    lines = itertools.product(runs.items(), names)
    for index, ((run_name, history), name) in enumerate(lines):
        label = run_name
        if is_single_run:
            label = literal(name.rpartition("/")[2])
        style = _metric_style(index, is_single_run)
        steps, values = _points(history, name)
        axis.plot(steps, values, label=label, **style)
        _band(axis, history, name, style["color"])
    if len(names) > 1:
        axis.legend(frameon=False, fontsize=9, ncols=-(-len(names) // 6))
    else:
        _note_last(axis, next(iter(runs.values())), names[0])
    axis.margins(y=0.15)


def _metric_style(index: int, is_single_run: bool) -> dict[str, Any]:
    if is_single_run:
        style: dict[str, Any] = {"color": _COLOURS[index % len(_COLOURS)]}
    else:
        style = dict(_STYLES[index % len(_STYLES)])
    style["marker"] = _MARKERS[index % len(_MARKERS)]
    style["zorder"] = 2 + index
    style["markersize"] = 3.5 + 1.2 * float(style.get("linewidth", 0.0))
    return style


def _points(history: History, metric: str) -> tuple[list[int], list[float]]:
    """Return the steps at which a metric was measured, and its values."""
    steps = []
    values = []
    for epoch in history.epochs:
        if metric in epoch.held_out:
            steps.append(epoch.steps - 1)
            values.append(float(epoch.held_out[metric]))
    return steps, values


def _band(axis: Any, history: History, metric: str, colour: str) -> None:
    steps, low = _points(history, f"{metric}/low")
    _, high = _points(history, f"{metric}/high")
    if steps and len(low) == len(high):
        axis.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def _note_last(axis: Any, history: History, metric: str) -> None:
    """Write the first run's last value beside its point."""
    steps, values = _points(history, metric)
    if steps and np.isfinite(values[-1]):
        axis.annotate(
            f"{values[-1]:.4g}",
            xy=(steps[-1], values[-1]),
            xytext=(0, -16),
            textcoords="offset points",
            ha="right",
            fontsize=9,
        )


def _rates(axis: Any, runs: Mapping[str, History]) -> None:
    _prepare(axis, "learning rate, every step")
    has_several_runs = len(runs) > 1
    for index, (run_name, history) in enumerate(runs.items()):
        steps = [step.step for step in history.steps]
        style = _STYLES[index % len(_STYLES)] if has_several_runs else {}
        for optimizer in _optimizers(history):
            label = optimizer
            if has_several_runs:
                label = ", ".join(filter(None, [run_name, optimizer]))
            rates = [_rate(step, optimizer) for step in history.steps]
            axis.plot(steps, rates, label=label or "lr", **style)
    if len(axis.lines) > 1:
        axis.legend(frameon=False, fontsize=9)


def _differences(axis: Any, runs: Mapping[str, History]) -> None:
    (first, reference), *others = runs.items()
    title = f"relative difference of the loss to {first} (at 1e-17: the same to the last bit)"
    _prepare(axis, title)
    for index, (name, history) in enumerate(others, start=1):
        style = {**_STYLES[index % len(_STYLES)], "linestyle": "-", "linewidth": 1.2}
        axis.plot(_relative(reference.losses, history.losses), label=name, **style)
    epsilon = np.finfo(np.float64).eps
    axis.axhline(
        epsilon, color="0.45", linewidth=0.8, linestyle=":", label="float64 epsilon"
    )
    axis.set_yscale("log")
    axis.yaxis.set_minor_locator(NullLocator())
    axis.legend(frameon=False, loc="upper left", ncols=len(runs), handlelength=2.0)
    axis.margins(y=0.25)


def _relative(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    length = min(len(reference), len(other))
    size = np.maximum(np.abs(reference[:length]), _TINY)
    difference = np.abs(other[:length] - reference[:length]) / size
    return np.maximum(difference, _TINY)


# Contents of histories ----------------------------------------------------------------------------


def _metrics(runs: Mapping[str, History]) -> list[str]:
    """Return every metric of any run in order of appearance, without the ends of intervals."""
    names: dict[str, None] = {}
    for run in runs.values():
        for epoch in run.epochs:
            names.update(dict.fromkeys(epoch.held_out))
    ends = set()
    for name in names:
        low = f"{name}/low"
        high = f"{name}/high"
        if low in names and high in names:
            ends |= {low, high}
    return [name for name in names if name not in ends]


def _families(names: Sequence[str], alone: bool) -> list[list[str]]:
    """Return the metrics that share a panel: those with the same words before the last slash."""
    families: dict[str, list[str]] = {}
    for name in names:
        family = name.rpartition("/")[0]
        key = f"{family}/" if family and not alone else name
        families.setdefault(key, []).append(name)
    return list(families.values())


def _optimizers(history: History) -> list[str]:
    """Return the names of the optimizers with recorded rates; an empty name for a single rate."""
    for step in history.steps:
        if isinstance(step.lr, Mapping):
            return list(step.lr)
        if step.lr is not None:
            return [""]
    return []


def _rate(step: Step, name: str) -> float:
    rate = step.lr[name] if isinstance(step.lr, Mapping) else step.lr
    if rate is None:
        return float("nan")
    return rate


def _has_changing_rates(runs: Mapping[str, History]) -> bool:
    for history in runs.values():
        for name in _optimizers(history):
            rates = {_rate(step, name) for step in history.steps}
            if len(rates) > 1:
                return True
    return False


def _prepare(axis: Any, title: str) -> None:
    axis.set_title(literal(title), loc="left", fontsize=10.5)
    axis.grid(True, color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
