"""The price of imperfect phase: accuracy of sums in phase by phase error, delay and charged pilots,
beside uplinks without phase, at equal channel uses, and also at a tenth of the radiated energy.

    for s in phase phase_rivals; do otafl sweep studies/phase/$s.yaml; done
    python -m studies.phase.analyse [results] [--figure phase.png]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from studies.common.looks import TYPE, compute_half_interval
from studies.common.tables import (
    command,
    compute_gain,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    tune_at_cost,
)

USES = 50 * 2410
"""Channel uses of a run, with pilots and side information."""
FULL_J = 10 * 0.1 * USES / 1e6
"""Joules that ten devices of 0.1 W radiate in so many uses at 1 MHz."""
BUDGETS = {"equal channel uses": 1.0, "a tenth of the radiated energy": 0.1}
SNRS = ("-10 dB", "10 dB")
RIVALS = ("FSK-MV", "REED")
PHASES = (0, 30, 45, 60, 75, 90, 104)
LABELS = {"phase": "phase error [degrees]", "delay": "largest delay [symbols]", "pilots": "pilots"}


class Curve(NamedTuple):
    """An uplink over an impairment: how it is drawn, and which rows its rivals have.

    Its accuracies are [snr_db, at, trial]. Rivals are rows of `phase_rivals.yaml`.
    """

    name: str
    over: str
    style: str
    at: tuple[float, ...]
    accuracy: xr.DataArray
    rivals: slice = slice(0, 2)


def find_best(ds: xr.Dataset, share: float) -> xr.DataArray:
    """Compute test accuracy where the channel uses or the share of the joules are spent."""
    uses = (ds["uplink_symbols"] + ds["side_symbols"]) / USES
    spent = np.maximum(uses, ds["tx_energy_j"] / (share * FULL_J))
    best = tune_at_cost(ds, spent, xr.DataArray(1.0)).transpose("snr_db", "zip", ..., "trial")
    return best.drop_vars({*best.coords} - {"steps"})


def list_curves(swept: xr.DataArray, single: xr.DataArray) -> list[Curve]:
    """List what the study compares, from the rows of both scenarios."""
    delays, pilots = (0, 0.5, 0.99), (1, 4, 16, 64, 256)
    turned, rows = swept.rename(residual_phase_rad="at"), single.rename(zip="at")
    delayed = [
        xr.concat([turned[:, i, :1], rows[:, first : first + 2]], "at").transpose(*rows.dims)
        for i, first in enumerate((6, 8))
    ]
    return [
        Curve("pre_scaler", "phase", "go-", PHASES, turned[:, 0]),
        Curve("gbma", "phase", "rs-", PHASES, turned[:, 1]),
        Curve("pre_scaler, one quadrature", "phase", "go:", PHASES, turned[:, 2]),
        Curve("types", "phase", "b^-", (0, 45), rows[:, 4:6]),
        Curve("pre_scaler", "delay", "go-", delays, delayed[0]),
        Curve("gbma", "delay", "rs-", delays, delayed[1]),
        Curve("pre_scaler", "pilots", "go-", pilots, rows[:, 10:15]),
        Curve("gbma", "pilots", "rs-", pilots, rows[:, 15:20]),
        Curve("gbma, short blocks", "pilots", "", (1, 4, 16, 64), rows[:, 20:24], slice(2, 4)),
    ]


def write_points(accuracy: xr.DataArray, base: xr.DataArray) -> str:
    """Write points above a rival, half the 95 % interval of pairs, and a star at an end."""
    mean, low, high = 100 * compute_gain(accuracy, base)
    return f"{mean:+.1f}±{(high - low) / 2:.1f}" + "*" * str(accuracy["steps"].values).endswith("*")


def print_points(over: str, title: str, curves: list[Curve], single: xr.DataArray) -> None:
    """Print points above the better of both rivals, a row for each uplink, with both SNRs."""
    shown = [at for at in curves[0].at if at != 30]  # as without error
    print_head(f"By {LABELS[over]}, at {title}", "uplink", *(f"{at:g}" for at in shown))
    for one in curves:
        rivals = single[:, one.rivals]
        base = rivals.isel(zip=rivals.mean("trial").argmax("zip"))
        cells = {
            at: ", ".join(write_points(value, base[j]) for j, value in enumerate(values))
            for at, values in zip(one.at, one.accuracy.transpose("at", ...), strict=True)
        }
        print_row(one.name, *(cells.get(at, "") for at in shown))


def print_equal_rounds(ds: xr.Dataset, single: xr.DataArray) -> None:
    """Print sums after the rivals' 25 rounds, and one quadrature above two after 50 rounds."""
    uses = (ds["uplink_symbols"] + ds["side_symbols"]) / USES
    quarter, half, full = (
        tune_at_cost(ds, uses, xr.DataArray(share)).transpose("snr_db", "zip", ..., "trial")
        for share in (0.25, 0.5, 1.0)
    )
    best = [one.isel(zip=one.mean("trial").argmax("zip")).values for one in single[:, :2]]
    rivals = xr.zeros_like(quarter[:, 0]) + np.array(best)[:, None]
    rows = {
        "pre_scaler, 25 rounds": (quarter[:, 0], rivals),
        "gbma, 25 rounds": (quarter[:, 1], rivals),
        "pre_scaler, one quadrature, 25 rounds": (half[:, 2], rivals),
        "one quadrature above two, 50 rounds": (full[:, 2], half[:, 0]),
    }
    print_head("By phase error [degrees], at equal rounds", "uplink", *(f"{at}" for at in PHASES))
    for name, (values, rival) in rows.items():
        cells = [
            ", ".join(write_points(values[j, i], rival[j, i]) for j in range(2))
            for i in range(len(PHASES))
        ]
        print_row(name, *cells)


def draw(axes: np.ndarray, curves: list[Curve], single: xr.DataArray) -> None:
    """Draw accuracies by impairment in panels [SNR, impairment], and those without phase."""
    for j, snr in enumerate(SNRS):
        for axis, over in zip(axes[j], LABELS, strict=True):
            for name, values, line in zip(RIVALS, single[j], ("--", "-."), strict=False):
                axis.axhline(float(values.mean()), color="0.4", ls=line, label=name)
            for one in (one for one in curves if one.over == over and one.style):
                mean, half = one.accuracy[j].mean("trial"), compute_half_interval(one.accuracy[j])
                axis.errorbar(one.at, mean, half, fmt=one.style, ms=4, label=one.name)
            axis.set(title=snr, xlabel=LABELS[over], ylim=(0, 1))
            axis.grid(alpha=0.3)
        axes[j, 2].set(xscale="log", xticks=(1, 4, 16, 64, 256), xticklabels=(1, 4, 16, 64, 256))
        axes[j, 2].minorticks_off()
        axes[j, 0].set_ylabel("test accuracy")


def main() -> None:
    args = parse_study_arguments(__doc__, "phase.png")
    phase, rest = (open_result(args.results, name) for name in ("phase", "phase_rivals"))
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained", sharey=True)
    for title, share in BUDGETS.items():
        single = find_best(rest, share)
        curves = list_curves(find_best(phase, share), single)
        columns = (f"{rival}, {snr}" for rival in RIVALS for snr in SNRS)
        print_head(f"Without phase, at {title}: accuracy, step", "blocks", *columns)
        for first, blocks in ((0, "whole"), (2, "short"))[: 1 + (share == 1)]:
            cells = [single[j, first + i] for i in range(2) for j in range(2)]
            print_row(blocks, *(f"{float(one.mean()):.3f}, {one['steps'].values}" for one in cells))
        for over in LABELS:
            some = [one for one in curves if one.over == over]
            if share < 1:
                some = [
                    one for one in some if one.name in ("pre_scaler", "gbma") and over != "delay"
                ]
            if some:
                print_points(over, title, some, single)
        if share == 1:
            print_equal_rounds(phase, single)
            draw(axes, curves, single)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
