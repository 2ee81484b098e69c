"""Accuracy by power policy, SNR and number of devices, what each policy gains on equal power
(points, 95 % interval over pairs of trials), the joules that it radiates, and the figure.
A diverged trial counts as a guess.

    otafl sweep studies/physical_layer/fashion_mnist_gbma_ci.yaml
    python -m studies.physical_layer.fashion_mnist [results] [--figure fashion_mnist_gbma_ci.png]
"""

from __future__ import annotations

import numpy as np

from otafl.analysis.summary import format_mean_std
from otafl.plots import curve_data, draw
from otafl.scenario.notes import KINDS
from studies.common.tables import (
    command,
    format_points,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    read_end,
)

STUDY = "fashion_mnist_gbma_ci"
BASE = "gbma"
BUDGETS = {"peak": "every round", "average": "average"}
"""Kind of the power budget -> when it holds."""


def main() -> None:
    args = parse_study_arguments(__doc__, f"{STUDY}.png")
    result = open_result(args.results, STUDY)
    accuracy = read_end(result, "test_accuracy")
    lost = result["diverged_round"].notnull().sum("trial")
    policies, snrs = result["power"].values, result["snr_db"].values
    columns = [f"{snr:g} dB" for snr in snrs]
    kinds = result["power_constraint"].max(["snr_db", "device_count", "trial"]).values
    budgets = {
        power: BUDGETS[KINDS[int(kind)]] for power, kind in zip(policies, kinds, strict=True)
    }
    title = "Accuracy of GBMA, and points of the others above it (95 %; * with diverged trials)"
    print_head(title, "power", "budget holds", "devices", *columns)
    for power in policies:
        for count in result["device_count"].values:
            own, base = (accuracy.sel(power=one, device_count=count) for one in (power, BASE))
            cells = [
                format_mean_std(own.sel(snr_db=snr).values)
                if power == BASE
                else format_points(own.sel(snr_db=snr), base.sel(snr_db=snr))
                + "*" * bool(lost.sel(power=power, device_count=count, snr_db=snr))
                for snr in snrs
            ]
            print_row(power, budgets[power], count, *cells)
    truncated = accuracy.sel(power="tci(constraint=peak)")
    base = accuracy.sel(power=BASE)
    print_head("GBMA compared", "devices", "GBMA", "with", "-40 dB", "-30 dB", "-20 dB")
    for count in result["device_count"].values:
        one, other = (values.sel(device_count=count) for values in (base, truncated))
        at = {snr: format_points(one.sel(snr_db=snr), one.sel(snr_db=0)) for snr in snrs[:-1]}
        print_row(count, "same budget", "itself at 0 dB", *at.values())
        less = [format_points(one.sel(snr_db=s - 10), other.sel(snr_db=s)) for s in (-30, -20)]
        print_row(count, "10 dB less budget", "tci(constraint=peak)", "", *less)
    joules = read_end(result, "tx_energy_j").mean("trial").sel(device_count=50)
    print_head("Radiated energy of 50 devices, J, mean over trials", "power", *columns)
    for power in policies:
        row = joules.sel(power=power).values
        print_row(power, *("-" if np.isnan(value) else f"{value:.3g}" for value in row))
    lines = curve_data(result, "test_accuracy", "snr_db", hue="power", facet="device_count")
    draw(lines, args.figure)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
