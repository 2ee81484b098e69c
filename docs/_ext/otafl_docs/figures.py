"""Tiny figures for the cards of `choices`, one a table: SVG of few lines in the page's colours.

A figure is 96 by 48. Style sheets colour it by class: `a` is what it shows, `b` what is around it;
what has `fill` is filled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

DRAWERS: dict[str, Callable[[], str]] = {}
"""Table -> what draws its figure."""

Points = Iterable[tuple[float, float]]


def figure(table: str) -> str:
    """An SVG element of what a table is about; an empty text for a table without a drawing."""
    drawn = DRAWERS[table]() if table in DRAWERS else ""
    head = '<svg class="tiny" viewBox="0 0 96 48" aria-hidden="true">'
    return drawn and f"{head}{drawn}</svg>"


def drawing(draw: Callable[[], str]) -> Callable[[], str]:
    """Enter a function under the table that it is named after."""
    DRAWERS[draw.__name__.strip("_")] = draw
    return draw


def line(points: Points, css: str = "a") -> str:
    placed = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
    return f'<polyline class="{css}" points="{placed}"/>'


def box(x: float, y: float, width: float, height: float, css: str = "a fill") -> str:
    return f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def dot(x: float, y: float, radius: float = 4, css: str = "a fill") -> str:
    return f'<circle class="{css}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'


def arrow(x0: float, y0: float, x1: float, y1: float, css: str = "b") -> str:
    turn = math.atan2(y1 - y0, x1 - x0)
    head = [(x1 - 5 * math.cos(turn + a), y1 - 5 * math.sin(turn + a)) for a in (0.5, -0.5)]
    return line([(x0, y0), (x1, y1)], css) + line([head[0], (x1, y1), head[1]], css)


def curve(height: Callable[[float], float], css: str = "a") -> str:
    """A function of x in 0 to 1, whose values from 0 to 1 go up."""
    return line([(8 + 0.8 * i, 42 - 36 * height(i / 100)) for i in range(0, 101, 2)], css)


def fading(x: float) -> float:
    return 0.45 + 0.3 * math.sin(9 * x) + 0.2 * math.sin(23 * x + 1)


@drawing
def data() -> str:
    digit = ("01110", "10001", "00110", "10001", "01110")
    cells = [(x, y) for y, row in enumerate(digit) for x, bit in enumerate(row) if bit == "1"]
    tiles = "".join(box(x, y, 36, 36, "b page") for x, y in ((36, 3), (31, 6), (26, 9)))
    return tiles + "".join(box(31.5 + 5 * x, 14.5 + 5 * y, 5, 5) for x, y in cells)


@drawing
def start() -> str:
    """Training that goes on from a point on the way, where another run has come to."""
    before = [(8 + 0.32 * i, 8 + 26 * (i / 100)) for i in range(0, 101, 5)]
    after = [(40 + 0.48 * i, 34 + 8 * (1 - (1 - i / 100) ** 2)) for i in range(0, 101, 5)]
    return line(before, "b") + line(after) + dot(40, 34)


@drawing
def partition() -> str:
    shares = ((0.7, 0.2), (0.1, 0.25), (0.35, 0.6), (0.05, 0.1), (0.5, 0.1))
    parts = ""
    for i, (first, second) in enumerate(shares):
        x, cuts = 12 + 15.5 * i, (38 * first, 38 * (first + second))
        parts += box(x, 5, 10, cuts[0]) + box(x, 5 + cuts[0], 10, cuts[1] - cuts[0], "a half fill")
        parts += box(x, 5 + cuts[1], 10, 38 - cuts[1], "b")
    return parts


@drawing
def model() -> str:
    layers = [(16, (12, 24, 36)), (48, (6, 18, 30, 42)), (80, (16, 32))]
    edges = "".join(
        line([(x, y), (to, end)], "b")
        for (x, ys), (to, ends) in itertools.pairwise(layers)
        for y in ys
        for end in ends
    )
    return edges + "".join(dot(x, y, 3.5) for x, ys in layers for y in ys)


@drawing
def loss() -> str:
    parabola = curve(lambda x: 0.1 + 3.2 * (x - 0.5) ** 2)
    steps = [(0.12 + 0.11 * i, 0.1 + 3.2 * (0.12 + 0.11 * i - 0.5) ** 2) for i in range(4)]
    return parabola + "".join(dot(8 + 80 * x, 42 - 36 * y, 3) for x, y in steps)


@drawing
def algorithm() -> str:
    devices = (18, 48, 78)
    ways = "".join(arrow(x, 35, 48 + 0.35 * (x - 48), 17) for x in devices)
    return ways + dot(48, 10, 6) + "".join(box(x - 5, 36, 10, 8, "a") for x in devices)


@drawing
def channel() -> str:
    return line([(8, 5), (8, 42), (90, 42)], "b") + curve(fading)


@drawing
def csi() -> str:
    known = [(x / 8, fading(x / 8) + 0.08 * (-1) ** x) for x in range(9)]
    return curve(fading, "b") + "".join(dot(8 + 80 * x, 42 - 36 * y, 3) for x, y in known)


@drawing
def receiver() -> str:
    drawn = ""
    for y in (4, 18, 32):
        drawn += line([(8, y), (14, y + 6), (20, y)]) + line([(14, y), (14, y + 11)])
        drawn += line([(14, y + 11), (24, y + 11), (52, 24)], "b")
    return (
        drawn
        + dot(59, 24, 7, "a")
        + line([(55, 24), (63, 24)])
        + line([(59, 20), (59, 28)])
        + arrow(66, 24, 88, 24, "a")
    )


@drawing
def power() -> str:
    gains = (14, 8, 26, 18, 11)
    bars = "".join(
        box(12 + 15.5 * i, 42 - gain, 10, gain) + box(12 + 15.5 * i, 16, 10, 26 - gain, "b")
        for i, gain in enumerate(gains)
    )
    return bars + line([(6, 10), (90, 10)], "b dashed")


@drawing
def topology() -> str:
    servers = [(22, 14), (48, 14), (74, 14), (35, 33), (61, 33)]
    hexagon = [(0, -13), (12, -6), (12, 7), (0, 14), (-12, 7), (-12, -6), (0, -13)]
    cells = "".join(line([(x + a, y + b) for a, b in hexagon], "b") for x, y in servers[:3])
    cells += "".join(line([(x + a, y + b) for a, b in hexagon], "b") for x, y in servers[3:])
    return cells + "".join(dot(x, y, 3) for x, y in servers)


@drawing
def transport() -> str:
    drawn = ""
    for i, (pace, y) in enumerate(((2, 10), (3, 24), (1, 38))):
        wave = [(6 + x, y - 5 * math.sin(pace * x / 5 + i)) for x in range(37)]
        drawn += line(wave, "b") + line([(42, y), (50, 24)], "b")
    total = [
        (52 + x, 24 - 4.5 * sum(math.sin(pace * x / 5 + i) for i, pace in enumerate((2, 3, 1))))
        for x in range(39)
    ]
    return drawn + line(total)


@drawing
def server() -> str:
    steps = [(0.02, 0.95), (0.2, 0.58), (0.34, 0.28), (0.47, 0.1), (0.56, 0.04)]
    down = [(8 + 80 * x, 40 - 34 * y) for x, y in steps]
    bowl = curve(lambda x: 3.6 * (x - 0.52) ** 2 + 0.02, "b")
    return bowl + line(down) + "".join(dot(x, y, 2.5) for x, y in down)


@drawing
def rule() -> str:
    """Inputs close together, one far from them, and the aggregate."""
    near = [(22, 20), (30, 33), (38, 17), (42, 29), (27, 26)]
    inputs = "".join(dot(x, y, 3, "b fill") for x, y in near)
    return inputs + dot(86, 8, 3, "b fill") + dot(32, 25, 5)


@drawing
def attack() -> str:
    """Updates in one direction, and one against them."""
    honest = "".join(arrow(48, 40, x, 12, "b") for x in (62, 72, 80))
    return honest + arrow(48, 40, 16, 14, "a")


@drawing
def downlink() -> str:
    devices = (18, 48, 78)
    ways = "".join(arrow(48 + 0.3 * (x - 48), 16, x, 33) for x in devices)
    return ways + dot(48, 9, 6) + "".join(box(x - 5, 36, 10, 8, "a") for x in devices)


@drawing
def codec() -> str:
    whole = "".join(box(8 + 7 * x, 9 + 7 * y, 6, 6, "b") for x in range(5) for y in range(4))
    kept = ((0, 1), (1, 3), (2, 0), (4, 2))
    some = "".join(box(8 + 7 * x, 9 + 7 * y, 6, 6) for x, y in kept)
    sent = "".join(box(76, 9 + 7 * y, 6, 6) for y in range(4))
    return whole + some + arrow(50, 23, 68, 23) + sent


@drawing
def selection() -> str:
    chosen = {(0, 1), (2, 0), (3, 2), (5, 1)}
    places = [(x, y) for x in range(6) for y in range(3)]
    return "".join(
        dot(13 + 14 * x, 10 + 14 * y, 4.5, "a fill" if (x, y) in chosen else "b") for x, y in places
    )


@drawing
def capacity_levels() -> str:
    return "".join(
        box(x, 44 - side, side, side, css)
        for x, side, css in ((8, 38, "a"), (54, 24, "a half fill"), (84, 8, "a fill"))
    )


@drawing
def compute() -> str:
    pins = "".join(
        line([(x, 4), (x, 10)], "b") + line([(x, 38), (x, 44)], "b") for x in (38, 45, 51, 58)
    )
    pins += "".join(
        line([(28, y), (34, y)], "b") + line([(62, y), (68, y)], "b") for y in (14, 21, 27, 34)
    )
    return pins + box(34, 10, 28, 28, "a") + box(42, 18, 12, 12)


@drawing
def protocol() -> str:
    rows = ((8, 10, 34), (20, 10, 60), (32, 10, 22))
    busy = "".join(box(x, y, width, 7) for y, x, width in rows)
    return busy + line([(76, 3), (76, 45)], "a dashed") + line([(8, 44), (90, 44)], "b")


@drawing
def availability() -> str:
    rows = ((14, (0, 30, 52, 84)), (28, (14, 44)), (42, (0, 10, 36, 84)))
    drawn = ""
    for y, times in rows:
        drawn += line([(6, y), (90, y)], "b")
        pairs = zip(times[::2], times[1::2], strict=True)
        drawn += "".join(box(6 + start, y - 9, end - start, 9) for start, end in pairs)
    return drawn


@drawing
def cpu_frequency() -> str:
    def ticks(y: float, period: float, css: str) -> str:
        edges = [(6.0, y)]
        for i in range(int(84 / period)):
            x = 6 + period * i
            edges += [(x, y - 14), (x + period / 2, y - 14), (x + period / 2, y), (x + period, y)]
        return line(edges, css)

    return ticks(20, 7, "a") + ticks(43, 21, "b")


@drawing
def track() -> str:
    heights = (0.1, 0.42, 0.6, 0.72, 0.78, 0.82)
    seen = [(12 + 14.5 * i, 40 - 38 * y) for i, y in enumerate(heights)]
    return (
        line([(8, 5), (8, 42), (90, 42)], "b")
        + line(seen)
        + "".join(dot(x, y, 2.5) for x, y in seen)
    )
