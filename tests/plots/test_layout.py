"""Nothing in a figure overlaps or is cut, measured on the drawn texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import BboxBase
from support.marks import first_is_fast
from support.plot_bench import ROUNDS, make_ramp, make_result

from otafl.plots import curve_data, draw, heatmap_data, pareto_data

LONG = [
    "over_the_air(quadrature=True), cao_static, identity",
    "digital(access=ofdma), full, qsgd(bits=4, norm=max, bucket=512)",
    "ditto(personal_learning_rate=0.05)",
    "local_only",
    "pfedbred(strategy=mh, variant=paper, penalty=15)",
    "per_fedavg(server_learning_rate=2, personal_learning_rate=0.01)",
]


NUMBERS = [1e-3, 1.234567, 2.5, 1234567.0, 12345678.0, 22345678.0]


def grid(rows: list, columns: list) -> xr.Dataset:
    """A sweep over choices with long names and over numbers."""
    shape = (len(rows), len(columns), 2, 3)
    accuracy = np.arange(np.prod(shape), dtype=float).reshape(shape) * 12345.678
    ds = make_result({"test_accuracy": make_ramp()}).drop_vars(
        ["test_accuracy", "end_round", "stop_round"]
    )
    ds = ds.drop_vars(["diverged_round", "final_round"])
    ds["test_accuracy"] = (("scheme", "rate", "trial", "round"), accuracy)
    ds["tx_energy_j"] = (("scheme", "rate", "trial", "round", "device"), accuracy[..., None] + 1e7)
    ds["tx_energy_j"].attrs |= {"units": "J", "long_name": "energy radiated so far"}
    ds["test_accuracy"].attrs["long_name"] = "mean test accuracy of all the devices' local models"
    ends = np.full(shape[:2], float(ROUNDS[-1]))
    return ds.assign_coords(
        scheme=("scheme", rows, {"long_name": "transport, power policy, codec"}),
        rate=("rate", columns, {"long_name": "nominal rate of the uplink", "units": "bit/s"}),
        final_round=(("scheme", "rate"), ends),
    )


def is_within(box: BboxBase, whole: BboxBase) -> bool:
    return bool((box.min >= whole.min).all() and (box.max <= whole.max).all())


def list_tick_texts(axis: Axis) -> list[Text]:
    """Texts of an axis' major ticks that are seen."""
    low, high = sorted(axis.get_view_interval())
    pad = 1e-9 * abs(high - low)
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible()
        and tick.label1.get_text()
        and low - pad <= tick.get_loc() <= high + pad
    ]


def faults(figure: Figure) -> list[str]:
    """Texts that leave the figure, and legends that lie on a panel or on the title."""
    figure.draw_without_rendering()
    whole = figure.bbox
    found = []
    texts = [text for text in [figure._suptitle] if text is not None]
    for box in (legend.get_window_extent() for legend in figure.legends):
        if not is_within(box, whole):
            found.append("legend cut")
        found += ["legend over panel" for ax in figure.axes if box.overlaps(ax.bbox)]
        found += ["legend over title" for one in texts if box.overlaps(one.get_window_extent())]
    for ax in (ax for ax in figure.axes if ax.get_visible()):
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        for axis, side in ((ax.xaxis, 0), (ax.yaxis, 1)):
            ticks = list_tick_texts(axis)
            texts += ticks
            found += touching(ticks, side)
    for text in texts:
        box = text.get_window_extent()
        if text.get_text() and text.get_visible() and not is_within(box, whole):
            found.append(f"cut: {text.get_text()!r}")
    return found


def touching(ticks: list, side: int) -> list[str]:
    """Neighbours that overlap; names that are turned lie on each other's corners."""
    boxes = sorted((text.get_window_extent() for text in ticks), key=lambda box: box.min[side])
    if ticks and ticks[0].get_rotation() not in (0.0, 90.0):
        return []
    return [
        f"ticks touch: {side}"
        for one, other in itertools.pairwise(boxes)
        if other.min[side] < one.max[side] + 1
    ]


MANY = [f"choice {i}" for i in range(40)]


Y, X = "test_accuracy", "tx_energy_j"


DRAWN: dict[str, Callable[[], xr.Dataset]] = {
    "choices": lambda: curve_data(grid(LONG, NUMBERS), Y, "scheme", "rate"),
    "numbers": lambda: curve_data(grid(LONG, NUMBERS), Y, "rate", "scheme"),
    "many": lambda: curve_data(grid(MANY, [1.0]), Y, "scheme"),
    "maps": lambda: heatmap_data(grid(LONG, NUMBERS[:3]), Y, "rate", "round", "scheme"),
    "front": lambda: pareto_data(grid(LONG, NUMBERS[:2]), Y, X, "scheme"),
}


@pytest.mark.parametrize("name", first_is_fast(list(DRAWN)))
def test_no_text_is_cut(name: str) -> None:
    assert faults(draw(DRAWN[name](), title="a title " * 30)) == []


@pytest.mark.parametrize("name", ["numbers", "maps", "front"])
@pytest.mark.slow
def test_a_column_of_a_paper_has_nothing_cut_and_nothing_above_its_panels(name: str) -> None:
    figure = draw(DRAWN[name](), title="a title", width=3.5)
    assert faults(figure) == []
    assert figure.get_figwidth() == pytest.approx(3.5)
    assert figure.get_suptitle() == ""
