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

TUNING = ("personal_equal_steps", "personal_equal_steps_each", "personal_equal_ends")
FINAL = ("personal_equal", "personal_equal_each")
BASE = "fedavg, fine-tuned"
ALONE = "local_only"
UPLINKS = {"ideal": "ideal", "over_the_air": "-20 dB"}
NAMES = {"fedavg": BASE, "share_a": "adapters, B personal", "both": "adapters, fine-tuned"}
SHORT = {"learning_rate": "step", "personal_learning_rate": "own", "factor_learning_rate": "step"}
"""Settings, as the table names them."""

Cells = dict[tuple[str, str], list[xr.Dataset]]
"""The settings that ran, by method and uplink."""


def read_settings(point: xr.Dataset) -> dict[str, float]:
    """Read the numbers among the settings of a point, with the step of fine-tuning if it has any."""
    found = re.findall(r"(\w+)=([\d.e-]+)", str(point["algorithm"].values))
    settings = {SHORT.get(key, key): float(value) for key, value in found}
    steps = float(point["fine_tune_steps"])
    return settings | ({"tuning": float(point["fine_tune_learning_rate"])} if steps else {})


def list_cells(results: Path, files: tuple[str, ...]) -> Cells:
    """List the points of several results by method and uplink."""
    cells: Cells = {}
    for file in files:
        ds = open_result(results, file)
        for place in range(ds.sizes["zip"]):
            point = ds.isel(zip=place)
            label = str(point["algorithm"].values)
            word = re.search(r"mode=(\w+)", label)
            name = word[1] if word else label.partition("(")[0]
            for uplink in ds["transport"].values:
                one = point.sel(transport=uplink)
                if one["final_round"].notnull():
                    cells.setdefault((NAMES.get(name, name), str(uplink)), []).append(one)
    return cells


def read_accuracy(point: xr.Dataset, of: str) -> xr.DataArray:
    """Read the accuracy of the personal models at the end, in percent; fine-tuned if that ran."""
    kind = "tuned_own" if float(point["fine_tune_steps"]) else "personal_own"
    return 100 * select_end_total(point, f"{kind}_{of}_accuracy")


def choose(points: list[xr.Dataset]) -> tuple[dict[str, float], str]:
    """Choose the settings with the best mean on validation samples, and write those that several
    values were tried of; `*` marks the least and the most.
    """
    tried = [read_settings(point) for point in points]
    means = [float(read_accuracy(point, "validation").mean()) for point in points]
    best = tried[int(np.nanargmax(means))]
    said = []
    for key, value in best.items():
        values = sorted({one[key] for one in tried})
        said += [f"{key} {value:g}{'*' * (value in (values[0], values[-1]))}"] * (len(values) > 1)
    return best, ", ".join(said)


def count_joules(point: xr.Dataset) -> tuple[float, float]:
    """Count the joules of computing and of radiating of all devices, means over trials."""
    joules = select_at_end(point, "device_energy_j")
    joules = joules.sum("device") if "device" in joules.dims else joules
    return tuple(float(joules.sel(cause=one).mean()) for one in ("compute", "transmit"))


def main() -> None:
    args = parse_study_arguments(__doc__, "personal_equal.png")
    tuning, final = (list_cells(args.results, files) for files in (TUNING, FINAL))
    chosen = {cell: choose(points) for cell, points in tuning.items()}
    found = {
        cell: next(one for one in points if read_settings(one) == chosen[cell][0])
        for cell, points in final.items()
    }
    own = {cell: read_accuracy(point, "test") for cell, point in found.items()}
    order = sorted({name for name, _ in own}, key=lambda name: -float(own[name, "ideal"].mean()))
    columns = ("accuracy", f"minus {BASE}", f"minus {ALONE}", "global model", "chosen")
    for uplink, word in UPLINKS.items():
        majority = float(found[BASE, uplink]["majority_accuracy"].mean())
        print_head(f"Uplink: {word}; majority class {majority:.1%}", "personal model", *columns)
        for name in order:
            cell = name, uplink
            if cell not in own:
                continue
            bases = own[BASE, uplink], own[ALONE, "ideal"]
            gains = (compute_gain(own[cell], base) for base in bases)
            said = [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for mean, low, high in gains]
            common = 100 * float(select_end_total(found[cell], "test_accuracy").mean())
            common_said = f"{common:.1f}" if np.isfinite(common) else ""
            print_row(name, f"{float(own[cell].mean()):.1f}", *said, common_said, chosen[cell][1])
    print_head("Spent by a device", "method", "gradients", "rounds", "uses, million", "joules")
    for name in order:
        point = found[name, "ideal"]
        uses = float(select_at_end(point, "uplink_symbols").mean()) / 1e6
        rounds = float(point["final_round"])
        print_row(name, rounds, f"{uses:.2f}", *(f"{one:.2f}" for one in count_joules(point)))
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, axis = plt.subplots(figsize=(10, 6), layout="constrained")
    for shift, colour, (uplink, word) in zip((0.12, -0.12), ("C0", "C3"), UPLINKS.items()):
        there = [name for name in order if (name, uplink) in own and name != BASE]
        gains = np.array([compute_gain(own[name, uplink], own[BASE, uplink]) for name in there])
        places = [-order.index(name) + shift for name in there]
        error = (gains[:, 0] - gains[:, 1], gains[:, 2] - gains[:, 0])
        axis.errorbar(gains[:, 0], places, xerr=error, fmt="o", color=colour, capsize=3, label=word)
    axis.set_yticks([-place for place in range(len(order))], order)
    axis.axvline(0, color="black", lw=1)
    axis.set(xlabel=f"points above {BASE}, 95 % interval over trials")
    axis.legend(title="uplink")
    figure.savefig(args.figure, dpi=100)


if __name__ == "__main__":
    command(main)
