"""Pictures of a proof as SVG within a page: differences by layer, and curves with a band.

Colours are variables of the page's style sheet with a value of their own beside them, so that a
picture can be read on light and on dark paper. Drawn with matplotlib's figure objects alone: no
global setting changes, and what the user has set changes nothing here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from deliralike.conformance.findings import LIMIT
from deliralike.training.curves import literal

FLOOR = 1e-18  # where "equal to the last bit" is drawn: below what float64 can resolve
_WIDEST = 11.5  # inches: a page's width, so that texts keep their size
_APART = 0.125  # inches from one name along an axis to the next
_MARKED = 120  # layers that find room for a mark each

# Colours in the drawing that stand for variables in the page. Of the values for light paper, Okabe
# and Ito's (2008).
_VARIABLES = {
    "#010101": ("ink", "#1c1e21"),
    "#020202": ("grid", "#d9dce1"),
    "#030303": ("train", "#0072b2"),
    "#040404": ("eval", "#009e73"),
    "#050505": ("alone", "#9aa2ad"),
    "#060606": ("failed", "#d55e00"),
    "#070707": ("band", "#e69f00"),
}
_INK, _GRID, _TRAIN, _EVAL, _ALONE, _FAILED, _BAND = _VARIABLES


def by_layer(
    layers: Sequence[Mapping[str, Any]], limit: float = LIMIT, name: str = "layers"
) -> str:
    """Draw differences of each layer against its depth, in either mode and alone at equal inputs.

    Args:
        layers: See `deliralike.conformance.report`.
        limit: What is allowed, as a line.
        name: What the picture's own names begin with; no two pictures of a page may share it.

    Returns:
        An ``<svg>`` element.
    """
    values = {key: _column(layers, key) for key in ("train", "eval", "forced")}
    top = _top(values.values(), limit)
    drawn = {key: _drawable(column, top) for key, column in values.items()}
    with _own_style():
        width = min(_WIDEST, max(7.0, 1.5 + 0.17 * len(layers)))
        figure, axis = _figure(width, height=4.6)
        _alone(axis, drawn["forced"], limit)
        _running(axis, drawn, limit, top)
        axis.axhline(limit, color=_FAILED, linewidth=1.0, linestyle="--", label=f"limit {limit:g}")
        accused = np.flatnonzero(values["forced"] > limit).tolist()
        _name_layers(axis, layers, accused, each=int(np.ceil(len(layers) * _APART / (width - 1))))
        _differences_axis(axis, top, any(np.isinf(column).any() for column in values.values()))
        axis.set_ylabel("relative difference, float64")
        _legend(axis)
        return _svg(figure, name, "Differences of each layer")


def curves(content: Mapping[str, Any], name: str = "curves") -> str:
    """Draw losses step by step with the band of float32, and below them the differences.

    Args:
        content: See `deliralike.conformance.report`.
        name: As for `by_layer`.

    Returns:
        An ``<svg>`` element.
    """
    lines = {
        key: np.asarray(content.get(key) or (), np.float64)
        for key in ("reference", "candidate", "float32")
    }
    with _own_style():
        figure, upper, lower = _two(width=8.5, height=5.2)
        _band(upper, content.get("band"))
        upper.plot(lines["reference"], color=_TRAIN, linewidth=4.5, alpha=0.45, label="reference")
        upper.plot(
            lines["candidate"], color=_INK, linewidth=1.2, linestyle=(0, (4, 3)), label="candidate"
        )
        if lines["float32"].size:
            upper.plot(lines["float32"], color=_BAND, linewidth=1.2, label="float32")
        _losses_axis(upper, lines)
        _between(lower, lines, content.get("band"))
        return _svg(figure, name, "Loss curves and their differences")


# Differences by layer
# -----------------------------------------------------------------------------


def _alone(axis: Any, values: np.ndarray, limit: float) -> None:
    """Bars from the floor, in another colour above the limit."""
    for chosen, colour, label in (
        (values <= limit, _ALONE, "alone, at equal inputs"),
        (values > limit, _FAILED, "alone, above the limit"),
    ):
        if chosen.any():
            places = np.flatnonzero(chosen)
            axis.bar(
                places,
                values[chosen] - FLOOR / 10,
                0.62,
                FLOOR / 10,
                color=colour,
                label=label,
                zorder=1,
            )


def _running(axis: Any, drawn: Mapping[str, np.ndarray], limit: float, top: float) -> None:
    """Lines for what the layers give one after another; what is above the limit has full marks."""
    for key, colour, marker in (("train", _TRAIN, "o"), ("eval", _EVAL, "D")):
        values = drawn[key]
        if np.isfinite(values).any():
            shown = marker if len(values) <= _MARKED else ""
            axis.plot(
                values,
                color=colour,
                linewidth=1.3,
                marker=shown,
                markersize=3.4,
                markerfacecolor="none",
                label=f"running, {key}",
                zorder=3,
            )
            above = np.where(values > limit, values, np.nan)
            axis.plot(above, linestyle="", marker=shown, markersize=3.8, color=colour, zorder=4)


def _differences_axis(axis: Any, top: float, not_finite: bool, each: int = 2) -> None:
    """Label decades; the lowest is called exact, and the highest not finite if any value is there."""
    axis.set_yscale("log")
    axis.set_ylim(FLOOR / 4, top * 4)
    highest = round(np.log10(top)) - (each // 2 if not_finite else 0)
    decades = [10.0**power for power in range(-16, highest, each)]
    ends = [(top, "not finite")] if not_finite else []
    ticks = [
        (FLOOR, "exact"),
        *((decade, f"$10^{{{round(np.log10(decade))}}}$") for decade in decades),
        *ends,
    ]
    axis.set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    axis.yaxis.set_minor_locator(NullLocator())


def _name_layers(
    axis: Any, layers: Sequence[Mapping[str, Any]], accused: Sequence[int], each: int
) -> None:
    """Name suspected layers along the axis first, then as many others as fit, one of `each`."""
    shown = _apart([*accused, *range(0, len(layers), each)], each)
    axis.set_xticks(
        shown,
        [_called(layers[index], index in accused) for index in shown],
        rotation=90,
        fontsize=7,
    )
    for index, label in zip(shown, axis.get_xticklabels(), strict=True):
        if index in accused:
            label.set(color=_FAILED, fontweight="bold")
    axis.set_xlim(-0.8, max(1, len(layers)) - 0.2)


def _called(layer: Mapping[str, Any], accused: bool) -> str:
    path = literal(layer["path"] or "the network")
    return f"{path} ({layer['kind']})" if accused and layer.get("kind") else path


def _apart(wanted: Sequence[int], distance: int) -> list[int]:
    """Of some places those that lie apart; the earlier in the list keeps a later one away."""
    taken: list[int] = []
    for index in wanted:
        if all(abs(index - other) >= distance for other in taken):
            taken.append(index)
    return sorted(taken)


def _column(layers: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """One number for each layer: NaN where it was not run, infinite where it is not finite."""
    found = [layer.get(key) for layer in layers]
    return np.array(
        [np.nan if value is None else value if np.isfinite(value) else np.inf for value in found],
        float,
    )


def _top(columns: Any, limit: float) -> float:
    """A decade above everything, for what is not finite."""
    largest = max(
        [limit, 1e-4, *(float(column[np.isfinite(column)].max(initial=0.0)) for column in columns)]
    )
    return float(10.0 ** (np.floor(np.log10(largest)) + 2))


def _drawable(values: np.ndarray, top: float) -> np.ndarray:
    """Values within the picture."""
    return np.clip(values, FLOOR, top)


# Curves
# -----------------------------------------------------------------------------


def _band(axis: Any, band: Sequence[Sequence[float]] | None) -> None:
    if band:
        low, high = (np.asarray(end, np.float64) for end in band)
        axis.fill_between(
            np.arange(len(low)),
            low,
            high,
            color=_BAND,
            alpha=0.3,
            linewidth=0,
            label="noise of float32",
        )


def _losses_axis(axis: Any, lines: Mapping[str, np.ndarray]) -> None:
    axis.set_ylabel("loss")
    finite = [line[np.isfinite(line)] for line in lines.values()]
    if all((line > 0).all() for line in finite) and max(_span(line) for line in finite) > 20:
        axis.set_yscale("log")
    _legend(axis)


def _span(line: np.ndarray) -> float:
    return float(line.max() / line.min()) if line.size else 1.0


def _between(
    axis: Any, lines: Mapping[str, np.ndarray], band: Sequence[Sequence[float]] | None
) -> None:
    """The relative differences of the losses to the reference, step by step."""
    reference = lines["reference"]
    values = {key: _relative(reference, lines[key]) for key in ("candidate", "float32")}
    ends = [_relative(reference, np.asarray(end, np.float64)) for end in band or ()]
    top = _top([*values.values(), *ends], LIMIT)
    if ends:
        width = _drawable(np.maximum(*ends), top)
        axis.fill_between(
            np.arange(len(width)), FLOOR / 10, width, color=_BAND, alpha=0.2, linewidth=0
        )
    for key, colour in (("float32", _BAND), ("candidate", _INK)):
        if values[key].size:
            axis.plot(_drawable(values[key], top), color=colour, linewidth=1.2)
    axis.axhline(LIMIT, color=_FAILED, linewidth=1.0, linestyle="--", label=f"limit {LIMIT:g}")
    _differences_axis(axis, top, any(np.isinf(column).any() for column in values.values()), each=4)
    axis.set_ylabel("difference\nto the reference")
    axis.set_xlabel("step")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axis)


def _relative(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Step by step, as far as both go; infinite where one of them alone is not finite."""
    length = min(len(reference), len(other))
    first, second = reference[:length], other[:length]
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore", over="ignore"):
        values = np.abs(second - first) / np.maximum(np.abs(first), np.finfo(np.float64).tiny)
    return np.where(same, 0.0, np.where(np.isfinite(values), values, np.inf))


# Figures
# -----------------------------------------------------------------------------


def _own_style() -> Any:
    """Return a context with matplotlib's defaults, texts kept as texts, and reproducible names."""
    return style.context(["default", {"svg.fonttype": "none", "svg.hashsalt": "deliralike"}])


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(), facecolor="none")
    return figure, _prepared(figure.subplots())


def _two(width: float, height: float) -> tuple[Figure, Any, Any]:
    """Two axes, the upper one higher."""
    figure = Figure(
        figsize=(width, height), layout=ConstrainedLayoutEngine(hspace=0.06), facecolor="none"
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    return figure, _prepared(upper), _prepared(lower)


def _prepared(axis: Any) -> Any:
    """Axes in the page's colours."""
    axis.set_facecolor("none")
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_GRID)
    axis.tick_params(colors=_INK, labelsize=8, color=_GRID)
    axis.grid(axis="y", color=_GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.xaxis.label.set_color(_INK)
    axis.yaxis.label.set_color(_INK)
    return axis


def _legend(axis: Any) -> None:
    """Above the axes, where it hides nothing, in as many columns as find room."""
    columns = int(axis.figure.get_figwidth() // 1.75)
    axis.legend(
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        fontsize=8,
        labelcolor=_INK,
        borderaxespad=0.2,
        handlelength=2.2,
    )


def _svg(figure: Figure, name: str, described: str) -> str:
    """Return the picture as an element of a page, without head and origin.

    Its colours are variables, and its names are its own.
    """
    file = io.BytesIO()
    figure.savefig(
        file,
        format="svg",
        metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        transparent=True,
    )
    drawn = file.getvalue().decode()
    drawn = drawn[drawn.index("<svg") :].strip()
    drawn = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawn)
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{described}" ', 1)
    for colour, (variable, value) in _VARIABLES.items():
        drawn = drawn.replace(colour, f"var(--{variable}, {value})")
    return drawn
