"""All personalised methods at equal gradients and channel uses: each at its best settings on the
validation samples of other trials, and what it gains over fine-tuned FedAvg in the same trials.

    for f in studies/personal/personal_equal*.yaml; do otafl sweep $f; done
    python -m studies.personal.equal [results] [--figure personal_equal.png]
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.results.end_values import select_at_end, select_end_total
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    compute_gain,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

TUNING = (
    *("personal_equal_steps", "personal_equal_steps_each"),
    *("personal_equal_ends", "personal_equal_ends_each"),
)
FINAL = ("personal_equal", "personal_equal_each")
BASE = "fedavg, fine-tuned"
UPLINKS = {"ideal": "ideal", "over_the_air": "-20 dB"}
NAMES = {"fedavg": BASE, "share_a": "adapters, B personal", "both": "adapters, fine-tuned"}
SHORT = {"learning_rate": "step", "personal_learning_rate": "own", "factor_learning_rate": "step"}
"""Settings, as the table names them."""

Cells = dict[tuple[str, str], list[xr.Dataset]]
"""The settings that ran, by method and uplink."""


def read_settings(point: xr.Dataset) -> dict[str, float]:
    """Read the numbers among the settings of a point, those that decide how it learns."""
    found = re.findall(r"(\w+)=([\d.e-]+)", str(point["algorithm"].values))
    settings = {SHORT.get(key, key): float(v) for key, v in found if key != "prox_steps"}
    settings["local steps"] = float(point["local_steps"])
    if float(point["fine_tune_steps"]):
        settings["tuning"] = float(point["fine_tune_learning_rate"])
    return settings


def list_cells(results: Path, files: tuple[str, ...]) -> Cells:
    """List the points of several results by method and uplink."""
    cells: Cells = {}
    for file in files:
        try:
            ds = open_result(results, file)
        except otafl.UserError:  # a sweep that has not been run
            continue
        for place in range(ds.sizes["zip"]):
            point = ds.isel(zip=place)
            label = str(point["algorithm"].values)
            word = re.search(r"mode=(\w+)", label)
            name = word[1] if word else label.partition("(")[0]
            for uplink in np.atleast_1d(point["transport"].values):
                one = point.sel(transport=uplink) if "transport" in point.dims else point
                cells.setdefault((NAMES.get(name, name), str(uplink)), []).append(one)
    return cells


def read_accuracy(point: xr.Dataset, of: str) -> xr.DataArray:
    """Read the accuracy of the personal models at the end, in percent; fine-tuned if that ran."""
    kind = "tuned_own" if float(point["fine_tune_steps"]) else "personal_own"
    return 100 * select_end_total(point, f"{kind}_{of}_accuracy")


def choose(points: list[xr.Dataset]) -> tuple[xr.Dataset, str]:
    """Choose the settings with the best mean on validation samples, and write those that several
    values were tried of; `*` marks the least and the most.
    """
    tried = [read_settings(point) for point in points]
    means = [float(read_accuracy(point, "validation").mean()) for point in points]
    place = int(np.nanargmax(means))
    said = []
    for key, value in tried[place].items():
        values = sorted({one[key] for one in tried})
        said += [f"{key} {value:g}{'*' * (value in (values[0], values[-1]))}"] * (len(values) > 1)
    return points[place], ", ".join(said)


def main() -> None:
    args = parse_study_arguments(__doc__, "personal_equal.png")
    tuning, final = (list_cells(args.results, files) for files in (TUNING, FINAL))
    chosen = {cell: choose(points) for cell, points in tuning.items()}
    found = {cell: best for cell, (best, _) in chosen.items()}
    found |= {cell: points[0] for cell, points in final.items()}
    own = {cell: read_accuracy(point, "test") for cell, point in found.items()}
    order = sorted({name for name, _ in own}, key=lambda name: -float(own[name, "ideal"].mean()))
    print_head(
        f"Equal gradients and channel uses, {own[BASE, 'ideal'].size} trials",
        *("personal model", "ideal, %", f"minus {BASE}", "-20 dB, %", f"minus {BASE}"),
        *("global, %", "rounds", "uses, 10^6", "mJ", "chosen: ideal; -20 dB"),
    )
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, axis = plt.subplots(figsize=(10, 6), layout="constrained")
    for place, name in enumerate(order):
        cells, settings = [], []
        for turn, uplink in enumerate(UPLINKS):
            if (name, uplink) not in own:
                cells += ["", ""]
                continue
            mean, low, high = compute_gain(own[name, uplink], own[BASE, uplink])
            cells.append(f"{float(own[name, uplink].mean()):.1f}")
            cells.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]")
            settings.append(chosen[name, uplink][1])
            error = [[mean - low], [high - mean]]
            label = UPLINKS[uplink] if name == BASE else None
            at = 0.12 - 0.24 * turn - place
            axis.errorbar(mean, at, xerr=error, fmt=f"oC{3 * turn}", capsize=3, label=label)
        last = found[name, uplink if (name, uplink) in own else "ideal"]
        common = np.nan  # of methods without a global model
        if "test_accuracy" in last:
            common = 100 * float(select_end_total(last, "test_accuracy").mean())
        uses = float(select_at_end(last, "uplink_symbols").mean()) / 1e6
        joules = [select_at_end(last, f"{one}_energy_j").mean("trial") for one in ("compute", "tx")]
        cells += ["" if np.isnan(common) else f"{common:.1f}", f"{int(last['final_round'])}"]
        cells += [f"{uses:.2f}", " + ".join(f"{1e3 * float(one):.0f}" for one in joules)]
        print_row(name, *cells, "; ".join(dict.fromkeys(settings)))
    axis.set_yticks([-place for place in range(len(order))], order)
    axis.axvline(0, color="black", lw=1)
    axis.set(xlabel=f"points above {BASE}, 95 % interval over trials")
    axis.legend(title="uplink", loc="upper left")
    figure.savefig(args.figure, dpi=100)


if __name__ == "__main__":
    command(main)
