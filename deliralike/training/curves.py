"""Pictures of runs: loss, metrics, learning rate, and the differences to the first run.

They are drawn with matplotlib's figure objects alone: no window is opened, no backend chosen, no
global setting changed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from deliralike.training.history import shown_figures

# Colours that people with colour-blindness tell apart (Okabe and Ito 2008).
_COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
_TINY = 1e-17  # drawn where two runs are equal to the last bit: below what float64 can resolve

Runs = Mapping[str, Any]  # a `History` by name, which imports this file to draw itself


def draw_curves(
    runs: Runs,
    path: str | Path,
    title: str = "",
    metrics: Sequence[str] | None = None,
    *,
    with_differences: bool = True,
) -> Path:
    """Draw the loss, the metrics and the learning rate of runs over one another; save the picture.

    The metrics are those on validation data. Of a single run, metrics of one family (``dice/1``,
    ``dice/2``) share a panel.

    Args:
        runs: Histories by the name that the legend shows; the first is the reference.
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        metrics: The metrics to draw; all when not given, but of those with many figures the mean.
        with_differences: Whether to draw the differences of several runs to the first, too.

    Returns:
        The path of the picture.
    """
    figure_of(runs, title, metrics, with_differences).savefig(path)
    return Path(path)


def figure_of(
    runs: Runs,
    title: str,
    metrics: Sequence[str] | None,
    with_differences: bool = True,
) -> Figure:
    """Return the picture that `draw_curves` saves, as a figure."""
    panels: list[Callable[[Any], None]] = [partial(_draw_losses, runs=runs)]
    names = _metrics(runs) if metrics is None else list(metrics)
    for family in _families(names, alone=len(runs) > 1):
        panels.append(partial(_draw_metrics, runs=runs, names=family))
    if _has_changing_rates(runs):
        panels.append(partial(_draw_rates, runs=runs))
    if with_differences and len(runs) > 1:
        panels.append(partial(_draw_differences, runs=runs))
    figure = _Picture(
        figsize=(8.0, 1.0 + 2.6 * len(panels)),
        dpi=120,
        layout=ConstrainedLayoutEngine(hspace=0.06),
        facecolor="white",
    )
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis)
        axis.grid(True, color="0.9", linewidth=0.8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("step")
    figure.suptitle(literal(title), fontsize=13, fontweight="bold")
    return figure


class _Picture(Figure):
    """A figure that a notebook shows, whether or not matplotlib's interactive part is loaded."""

    def _repr_png_(self) -> bytes:
        """Return the file that a notebook shows."""
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


# Panels -------------------------------------------------------------------------------------------


def _draw_losses(axis: Any, runs: Runs) -> None:
    """Draw the loss of each step; of a single run with several losses each of them."""
    _set_title(axis, "training loss, every step")
    lines = []
    for name, history in runs.items():
        several = _losses(history) if len(runs) == 1 else {}
        for label, losses in (several or {name: history.losses}).items():
            lines.append((label, [step.step for step in history.steps], losses))
    for index, (label, steps, losses) in enumerate(lines):
        axis.plot(steps, losses, label=literal(label), **_style(index, runs))
    _set_log_scale(axis, np.concatenate([losses for _, _, losses in lines]))
    if len(axis.lines) > 1:
        _show_legend(axis)


def _draw_metrics(axis: Any, runs: Runs, names: Sequence[str]) -> None:
    """Draw one metric of each run, or several of one run."""
    title = names[0]
    if len(names) > 1:
        title = title.rpartition("/")[0]
    _set_title(axis, f"validation: {title}, every epoch")
    for index, (run_name, history) in enumerate(runs.items()):
        for place, name in enumerate(names):
            label = run_name if len(names) == 1 else name.rpartition("/")[2]
            style = _style(index + place, runs)
            steps, values = _points(history, name)
            axis.plot(steps, values, marker="o", label=literal(label), **style)
    if len(names) > 1:
        _show_legend(axis)


def _draw_rates(axis: Any, runs: Runs) -> None:
    _set_title(axis, "learning rate, every step")
    for index, (run_name, history) in enumerate(runs.items()):
        steps = [step.step for step in history.steps]
        for name, values in history.learning_rates().items():
            label = name.removeprefix("lr/")
            style = {}
            if len(runs) > 1:
                label = f"{run_name}, {label}"
                style = _style(index, runs)
            axis.plot(steps, values, label=literal(label), **style)
    if len(axis.lines) > 1:
        _show_legend(axis)


def _draw_differences(axis: Any, runs: Runs) -> None:
    (first, reference), *others = runs.items()
    title = f"relative difference of the loss to {first} (at 1e-17: the same to the last bit)"
    _set_title(axis, title)
    losses = {step.step: step.loss for step in reference.steps}
    for index, (name, history) in enumerate(others, start=1):
        # A resumed run has the steps after its checkpoint alone.
        shared = [step for step in history.steps if step.step in losses]
        wanted = np.array([losses[step.step] for step in shared])
        difference = np.abs(np.array([step.loss for step in shared]) - wanted)
        relative = difference / np.maximum(np.abs(wanted), _TINY)
        axis.plot(
            [step.step for step in shared],
            np.maximum(relative, _TINY),
            label=literal(name),
            color=_COLOURS[index % len(_COLOURS)],
        )
    epsilon = np.finfo(np.float64).eps
    axis.axhline(epsilon, color="0.45", linestyle=":", label="float64 epsilon")
    axis.set_yscale("log")
    _show_legend(axis)


def _show_legend(axis: Any) -> None:
    axis.legend(frameon=False, fontsize=9)


def _set_title(axis: Any, title: str) -> None:
    axis.set_title(literal(title), loc="left", fontsize=10.5)


def literal(text: str) -> str:
    r"""Return text without formulas, which matplotlib would see between two dollars.

    Example:
        >>> print(literal("$5"))
        \$5
    """
    return text.replace("$", r"\$")


def _style(index: int, runs: Runs) -> dict[str, Any]:
    """Return the style of a line; of several runs, which may coincide, the first is the widest."""
    width = 1.4
    if len(runs) > 1:
        width = max(5.0 / 2**index, 1.0)
    return {"color": _COLOURS[index % len(_COLOURS)], "linewidth": width}


def _set_log_scale(axis: Any, values: np.ndarray) -> None:
    """Make the scale logarithmic if all finite values are positive, with ticks such as 0.2."""
    finite = values[np.isfinite(values)]
    if len(finite) == 0 or finite.min() <= 0:
        return
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    decades = np.log10(finite.max() / finite.min())
    axis.yaxis.set_minor_formatter("{x:g}" if decades < 1 else _halves)


def _halves(value: float, _: int) -> str:
    """Return the label of a tick between decades: those of 2 and 5 have one."""
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""


# Contents of histories ----------------------------------------------------------------------------


def _losses(history: Any) -> dict[str, np.ndarray]:
    """Return the losses of each step by name; none where there is one alone."""
    names = dict.fromkeys(name for step in history.steps for name in step.losses)
    if len(names) < 2:
        return {}
    losses = {}
    for name in names:
        values = [step.losses.get(name, np.nan) for step in history.steps]
        losses[name] = np.array(values, np.float64)
    return losses


def _points(history: Any, metric: str) -> tuple[list[int], list[float]]:
    """Return the steps at which a metric was measured, and its values."""
    steps = []
    values = []
    for epoch in history.epochs:
        if metric in epoch.held_out:
            steps.append(epoch.steps - 1)
            values.append(float(epoch.held_out[metric]))
    return steps, values


def _metrics(runs: Runs) -> list[str]:
    """Return every metric of any run in order of appearance."""
    names: dict[str, None] = {}
    for run in runs.values():
        names.update(dict.fromkeys(run.metrics))
    return shown_figures(names)


def _families(names: Sequence[str], alone: bool) -> list[list[str]]:
    """Return the metrics that share a panel: those with the same words before the last slash."""
    families: dict[str, list[str]] = {}
    for name in names:
        family = name.rpartition("/")[0]
        key = f"{family}/" if family and not alone else name
        families.setdefault(key, []).append(name)
    return list(families.values())


def _has_changing_rates(runs: Runs) -> bool:
    for history in runs.values():
        for values in history.learning_rates().values():
            if len(set(values)) > 1 and not np.isnan(values).all():
                return True
    return False
