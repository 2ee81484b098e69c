"""Test accuracy of analogue sums, digital sums, votes and packets with equal channel uses.

Settings are chosen on validation images, for each uplink, number of devices and SNR alike.

    for f in studies/digital_sums/*.yaml; do otafl sweep $f; done
    python -m studies.digital_sums.analyse [results] [--figure digital_sums.png]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

UPLINKS = (
    ("analogue", "digital_sums", (0,)),
    ("SumComp, 4 x 4", "digital_sums", (1,)),
    ("bit slices, 4 bits", "digital_sums", (2,)),
    ("unsourced, normal codewords", "digital_sums", (3,)),
    ("unsourced, codewords of the aggregate", "digital_sums", (4,)),
    ("type-based, 8 levels", "digital_sums", (5,)),
    ("packets, largest coordinates", "digital_sums_packets", (0, 1, 2, 3)),
    ("votes of energies (FSK-MV)", "digital_sums_votes", (0, 1, 2, 3)),
    ("votes of signs (OBDA)", "digital_sums_votes", (4, 5, 6, 7)),
)

RULES = (
    ("analogue, random", (0,)),
    ("analogue, age_top_k", (1,)),
    ("analogue, fair_k", (2,)),
    ("SumComp, random", (3,)),
    ("SumComp, fair_k", (4,)),
    ("packets, largest of each device", (5, 6, 7)),
)

COLOURS = (
    "#000000",
    "#0072B2",
    "#56B4E9",
    "#D55E00",
    "#E69F00",
    "#CC79A7",
    "#009E73",
    "#7F7F7F",
    "#B0A000",
)


@dataclass(frozen=True)
class Rival:
    """An uplink at the settings that are best on validation images, by SNR."""

    name: str
    accuracy: xr.DataArray
    chosen: list[str]
    costs: xr.Dataset


def tune(results: Path, name: str, file: str, rows: tuple[int, ...]) -> Rival:
    """Choose the settings of an uplink at each SNR by the mean accuracy of validation images."""
    ds = open_result(results, file).isel(zip=list(rows))
    validation = read_end(ds, "validation_accuracy").mean("trial")
    flat = {"setting": ("zip", "learning_rate")}
    best = validation.stack(flat).fillna(0.0).argmax("setting")
    accuracy = read_end(ds, "test_accuracy").stack(flat).isel(setting=best)
    chosen = []
    for at in best.values:
        row, step = divmod(int(at), ds.sizes["learning_rate"])
        said = [f"step {float(ds['learning_rate'][step]):g}"] * (ds.sizes["learning_rate"] > 1)
        said[:] = [one + "*" * (step in (0, ds.sizes["learning_rate"] - 1)) for one in said]
        if len(rows) > 1:
            said.append(f"{row + 1} of {len(rows)}" + "*" * (row in (0, len(rows) - 1)))
        chosen.append(", ".join(said))
    names = ["uplink_symbols", "side_symbols", "tx_energy_j", "downlink_bits", "aggregation_nmse"]
    last = ds[names].isel(round=-1)
    sums = [dim for dim in ("device", "cause") if dim in last.dims]
    costs = last.sum(sums).mean("trial").stack(flat).isel(setting=best)
    return Rival(name, accuracy.transpose("snr_db", "trial"), chosen, costs)


def print_study(title: str, rivals: list[Rival], base: str) -> None:
    """Print accuracies, paired differences to one uplink, settings and costs."""
    snrs = rivals[0].accuracy["snr_db"].values
    head = [f"{snr:g} dB" for snr in snrs]
    first = next(one.accuracy for one in rivals if one.name == base)
    trials = first.sizes["trial"]
    print_head(f"{title}: test accuracy, mean ± deviation of {trials} trials", "uplink", *head)
    for one in rivals:
        print_row(one.name, *(format_mean_std(values) for values in one.accuracy.values))
    print_head(f"{title}: points above '{base}', 95 % interval of pairs", "uplink", *head)
    for one in rivals:
        if one.name != base:
            pairs = zip(one.accuracy, first, strict=True)
            print_row(one.name, *(format_points(*pair) for pair in pairs))
    print_head(f"{title}: settings chosen on validation images, * is an end", "uplink", *head)
    for one in rivals:
        print_row(one.name, *one.chosen)
    columns = ("channel uses", "side information", "joules radiated", "kbit of the downlink")
    at = int(np.abs(snrs - 10).argmin())
    print_head(f"{title}: costs of a round at {snrs[at]:g} dB", "uplink", *columns)
    for one in rivals:
        cost = one.costs.isel(snr_db=at) / float(one.costs["round"])
        uses, side, joules = (
            float(cost[name]) for name in ("uplink_symbols", "side_symbols", "tx_energy_j")
        )
        down = float(cost["downlink_bits"]) / 1e3
        print_row(one.name, f"{uses:.0f}", f"{side:.0f}", f"{joules:.3g}", f"{down:.0f}")


def draw(rivals: list[Rival], path: Path) -> None:
    """Draw the accuracies by SNR."""
    plt.rcParams.update(TYPE)
    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    for place, (one, colour) in enumerate(zip(rivals, COLOURS, strict=True)):
        mean, spread = one.accuracy.mean("trial"), one.accuracy.std("trial")
        snr = one.accuracy["snr_db"] + 0.3 * (place - 4)  # bars side by side
        style = {"color": colour, "marker": "o", "ms": 4, "capsize": 2, "label": one.name}
        axis.errorbar(snr, mean, spread, **style)
    axis.set(title="10 devices", xlabel="SNR (dB)", ylabel="test accuracy, mean and deviation")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=100)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__, "digital_sums.png")
    ten = [tune(args.results, name, file, rows) for name, file, rows in UPLINKS]
    many = [tune(args.results, name, f"{file}_50", rows) for name, file, rows in UPLINKS]
    print_study("10 devices", ten, "analogue")
    print_study("50 devices", many, "analogue")
    chosen = [tune(args.results, name, "digital_sums_rules", rows) for name, rows in RULES]
    print_study("A tenth of the coordinates", chosen, "analogue, random")
    draw(ten, args.figure)


if __name__ == "__main__":
    command(main)
