"""Write names beside points so that they cover neither each other nor what is drawn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from otafl.plots.layout import GAP

SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Where a name may lie from its point, right and up, the best first."""
DISTANCES = (6.0, 13.0, 23.0, 36.0, 52.0)
"""Points along x and y from a point to its name; beyond the first a thin line joins the two."""
CROSSED = 1.2
"""What lying on a line costs, in steps of `DISTANCES`."""
STYLE: dict[str, Any] = {
    "fontsize": 8,
    "color": "0.25",
    "zorder": 4,
    "textcoords": "offset points",
    "path_effects": [withStroke(linewidth=2, foreground="white")],
}
LEADER = {"arrowstyle": "-", "color": "0.55", "linewidth": 0.6, "shrinkA": 1.0, "shrinkB": 3.5}

Boxes = np.ndarray[Any, np.dtype[np.float64]]
"""[n, 4] pixels: left, bottom, right and top."""


class Place(NamedTuple):
    """Candidate position of a name.

    Parameters
    ----------
    box : [1, 4] of the name, with the gap around it.
    leader : [n, 4], places on the line to its point; none where it is near.
    settings : of the annotation.
    """

    box: Boxes
    leader: Boxes
    settings: dict[str, Any]


def name_points(ax: Axes, points: list[tuple[float, float, str]]) -> None:
    """Write a name beside each point, as near as it is free.

    A name never covers a mark or another name, nor leaves the panel, and lies on error bars and on
    staircases only where the way around is long. Names without a place are left out.

    Parameters
    ----------
    ax : whose layout is settled; its marks are those of its error bars.
    points : x, y and name of each.
    """
    taken, lines = _find_mark_boxes(ax), _find_line_boxes(ax)
    for x, y, name in points:
        place = _choose_place(_iterate_places(ax, (x, y), name), taken, lines) if name else None
        if place is not None:
            ax.annotate(name, (x, y), **STYLE, **place.settings)
            taken = np.vstack([taken, place.box])
            lines = np.vstack([lines, place.leader])


def _choose_place(places: Iterable[Place], taken: Boxes, lines: Boxes) -> Place | None:
    """Choose the place that costs least, of those that are free; None where none is."""
    best, least = None, math.inf
    for i, place in enumerate(places):
        crossed = _count_touching(place.box, lines)
        crossed += _count_touching(place.leader, np.vstack([taken, lines]))
        cost = i // len(SIDES) + CROSSED * crossed
        if cost < least and not _count_touching(place.box, taken):
            best, least = place, cost
    return best


def _iterate_places(ax: Axes, point: tuple[float, float], name: str) -> Iterator[Place]:
    """Yield the places of a name, the nearest first; one beyond the panel's frame is in its way."""
    trial = ax.annotate(name, point, (0, 0), **STYLE)
    size, pixels = trial.get_window_extent().size, _get_pixels_per_point(ax)
    trial.remove()
    mark = ax.transData.transform(point)
    for distance, side in itertools.product(DISTANCES, np.array(SIDES)):
        shift = distance * side
        low = mark + pixels * shift + size * (side - 1) / 2
        way = np.linspace(0.35, 1.0, 6)[:, None] * pixels * shift
        far = distance > DISTANCES[0]
        settings = {
            "xytext": tuple(shift),
            "ha": ("center", "left", "right")[side[0]],
            "va": ("center", "bottom", "top")[side[1]],
        }
        yield Place(
            np.concatenate([low - GAP, low + size + GAP])[None],
            np.tile(mark + way, 2) if far else np.empty((0, 4)),
            settings | ({"arrowprops": LEADER} if far else {}),
        )


def _find_mark_boxes(ax: Axes) -> Boxes:
    """Return the boxes of all marks, without their error bars, and of all beyond the frame."""
    left, low, right, high = ax.get_window_extent().extents
    far = math.inf
    beyond = [
        [-far, -far, left, far],
        [right, -far, far, far],
        [-far, -far, far, low],
        [-far, high, far, far],
    ]
    boxes = [np.array(beyond)]
    for marks in (bars.lines[0] for bars in ax.containers if isinstance(bars, ErrorbarContainer)):
        at = ax.transData.transform(np.column_stack(marks.get_data()).astype(float))
        half = 0.5 * marks.get_markersize() * _get_pixels_per_point(ax)
        boxes.append(np.hstack([at - half, at + half])[np.isfinite(at).all(1)])
    return np.vstack(boxes)


def _find_line_boxes(ax: Axes) -> Boxes:
    """Return the boxes of error bars and of staircases, piece by piece."""
    pieces: list[Any] = []
    for bars in ax.containers:
        if isinstance(bars, ErrorbarContainer):
            pieces += [piece for lines in bars.lines[2] for piece in lines.get_segments()]
    for line in ax.get_lines():
        if line.get_drawstyle() == "steps-post":
            x, y = (np.repeat(values, 2) for values in line.get_data())
            stairs = np.column_stack([x[1:], y[:-1]])
            pieces += list(itertools.pairwise(stairs))
    ends = ax.transData.transform(np.reshape(pieces, (-1, 2))).reshape(-1, 2, 2)
    return np.hstack([ends.min(1), ends.max(1)])


def _get_pixels_per_point(ax: Axes) -> float:
    """Return how many pixels a point of type has."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure.dpi / 72


def _count_touching(boxes: Boxes, other_boxes: Boxes) -> int:
    """Count the others that any of some shares a place with."""
    one = boxes[:, None]
    apart = (other_boxes[:, :2] > one[..., 2:]) | (other_boxes[:, 2:] < one[..., :2])
    return int((~apart.any(-1)).any(0).sum())
