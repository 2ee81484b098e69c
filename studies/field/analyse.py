"""What to send with: accuracy of every uplink at equal channel uses, and at equal radiated energy,
each at the step that validation data favour there, beside `power: pre_scaler` trial by trial.

    for s in field field_energy field_drain; do otafl sweep studies/field/$s.yaml; done
    python -m studies.field.analyse [results] [--figure field.png]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from studies.common.looks import TYPE, UPLINKS, compute_half_interval
from studies.common.tables import (
    command,
    compute_gain,
    format_points,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
    tune_at_cost,
)

NAMES = [name for _, names in UPLINKS.values() for name in names]
COLOURS = [colour for colour, names in UPLINKS.values() for _ in names]
BASE, FULL = NAMES.index("pre_scaler"), NAMES.index("FSK-MV")
CHANNELS = ("Rayleigh, 10 dB", "Rayleigh, -10 dB", "urban cell, 1 mW")
SHARES = (1.0, 0.3, 0.1, 0.03)
"""Budgets of radiated energy, over what full power radiates in as many symbols."""
SWEPT = ("gbma", "cotaf", "cao_static", "pre_scaler", "FSK-MV, absentees", "REED", "top-k 0.3 %")
"""Uplinks of `studies/field/field_energy.yaml`."""
DRAINED = ("gbma", "pre_scaler", "FSK-MV, absentees", "REED", "top-k 0.3 %")
"""Uplinks of `studies/field/field_drain.yaml`."""

SIZES = {
    "field_sizes": [(2410, 10), (2410, 50), (2410, 200), (79510, 10), (79510, 50), (79510, 200)],
    "field_sizes_large": [(1593810, 10), (1593810, 50)],
}
"""Parameters and devices of each five rows of these scenarios."""
TUNED = {
    "field_sizes_steps": SIZES["field_sizes"][:5],
    "field_sizes_200_steps": SIZES["field_sizes"][5:],
    "field_sizes_large_steps": SIZES["field_sizes_large"],
}
"""Those of each six rows of the scenarios in which steps are chosen."""
STEPS = (0.3, 1, 3, 9, 27)
"""Their steps."""
SIZED = ("ci", "cao_static", "pre_scaler", "REED", "packets")


def print_table(title: str, accuracy: xr.DataArray) -> None:
    gains = 100 * compute_gain(accuracy, accuracy.isel(zip=BASE))
    print_head(f"At {title}: accuracy; points above `pre_scaler`; step", "uplink", *CHANNELS)
    steps = accuracy["steps"].transpose("channel", "zip").values
    for j, name in enumerate(NAMES):
        cells = [f"{float(mean):.3f}" for mean in accuracy.isel(zip=j).mean("trial")]
        for i, (mean, low, high) in enumerate(gains[:, j]):
            cells[i] += f"; {mean:+.1f} [{low:+.1f}, {high:+.1f}]" * (j != BASE)
            cells[i] += f"; {steps[i, j]}"
        print_row(name, *cells)


def print_budgets(ds: xr.Dataset, full_j: float) -> None:
    """Print accuracies in the urban cell by the budget of radiated energy.

    Parameters
    ----------
    full_j : joules that all devices radiate at full power over the symbols of a run
    """
    found = [tune_at_cost(ds, ds["tx_energy_j"], xr.DataArray(share * full_j)) for share in SHARES]
    columns = (f"{100 * share:g} % (step)" for share in SHARES)
    print_head(
        "Budgets of energy in the urban cell: accuracy, and points above `pre_scaler`",
        *("uplink", *columns),
    )
    for j, name in enumerate(SWEPT):
        cells = []
        for values in found:
            values = values.transpose("zip", "trial")
            gain = format_points(values[j], values[SWEPT.index("pre_scaler")])
            gain = f"; {gain}" * (name != "pre_scaler")
            cells.append(f"{float(values[j].mean()):.3f}{gain}; {values['steps'].values[j]}")
        print_row(name, *cells)


def print_shares(ds: xr.Dataset) -> None:
    """Print what share of the devices' drain is radiated, on phones."""
    last = ds.isel(round=-1).mean("trial")
    drain = last["device_energy_j"].sum("cause")
    columns = "Rayleigh, 100 mW", "urban cell, 1 mW"
    print_head("Share of the phones' drain that is radiated", "uplink", *columns)
    shares = 100 * last["tx_energy_j"] / drain
    for j, name in enumerate(DRAINED):
        print_row(name, *(f"{float(share):.2g} %" for share in shares.isel(zip=j)))


def read_size(ds: xr.Dataset, i: int, num: int, parameters: int, name: str) -> xr.DataArray:
    """Read an accuracy of the i-th `num` rows at 20 channel uses a parameter."""
    some, budget = ds.isel(zip=slice(num * i, num * i + num)), xr.DataArray(20.0 * parameters)
    values = interpolate_at_cost(some, name, some["uplink_symbols"], budget)
    return values.transpose("zip", ..., "trial")


def print_sizes(ds: xr.Dataset, sizes: Sequence[tuple[int, int]]) -> None:
    """Print accuracies of other models and numbers of devices, beside `pre_scaler`."""
    base = SIZED.index("pre_scaler")
    for i, (parameters, devices) in enumerate(sizes):
        values = read_size(ds, i, 5, parameters, "test_accuracy")
        cells = []
        for j, one in enumerate(values):
            step = float(one["server_learning_rate"])
            star = "*" * (step in (STEPS[0], STEPS[-1]))
            mean, _, high = 100 * compute_gain(one, values[base])
            gain = f"{mean:+.1f}±{high - mean:.1f}; " * (j != base)
            cells.append(f"{float(one.mean()):.3f}; {gain}{step:g}{star}")
        print_row(f"{parameters:,}; {devices}", *cells)


def print_validation(ds: xr.Dataset, sizes: Sequence[tuple[int, int]]) -> None:
    """Print the validation accuracies of the grid, by step; packets have two rows."""
    names = (*SIZED, SIZED[-1] + ", more")
    for i, (parameters, devices) in enumerate(sizes):
        values = read_size(ds, i, 6, parameters, "validation_accuracy").mean("trial")
        for name, row in zip(names, values.values, strict=True):
            print_row(f"{parameters:,}; {devices}; {name}", *(f"{one:.3f}" for one in row))


def main() -> None:
    args = parse_study_arguments(__doc__, "field.png")
    ds = open_result(args.results, "field")
    most = ds.isel(zip=FULL).max(["round", "trial", "server_learning_rate"])
    budgets = {
        "equal channel uses": (ds["uplink_symbols"], most["uplink_symbols"]),
        "equal radiated energy": (ds["tx_energy_j"], most["tx_energy_j"] / 10),
    }
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 3, figsize=(10, 5.5), layout="constrained", sharey=True)
    marks = ("o", "full", 0.17), ("s", "none", -0.17)
    for (title, budget), (marker, fill, up) in zip(budgets.items(), marks, strict=True):
        accuracy = tune_at_cost(ds, *budget).transpose("channel", "zip", "trial")
        print_table(title, accuracy)
        half = compute_half_interval(accuracy)
        style = {"marker": marker, "fillstyle": fill, "ls": "", "ms": 6}
        for axis, means, halves in zip(axes, accuracy.mean("trial"), half, strict=True):
            for j, (mean, error) in enumerate(zip(means.values, halves.values, strict=True)):
                axis.errorbar(mean, up - j, xerr=error, color=COLOURS[j], **style)
        axes[0].plot([], [], color="0.5", label=title, **style)
    for kind, (colour, _) in UPLINKS.items():
        axes[0].plot([], [], color=colour, lw=4, label=kind)
    for axis, title in zip(axes, CHANNELS, strict=True):
        axis.set(title=title, xlim=(0, 1), xticks=(0.2, 0.4, 0.6, 0.8))
        axis.set_yticks(-np.arange(len(NAMES)), NAMES)
        axis.grid(alpha=0.3)
    axes[1].set_xlabel("test accuracy, 95 % interval")
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(args.figure, dpi=150)
    cell = most.isel(channel=CHANNELS.index("urban cell, 1 mW"))
    print_budgets(open_result(args.results, "field_energy"), float(cell["tx_energy_j"]))
    print_shares(open_result(args.results, "field_drain"))
    title = "Other sizes at -10 dB: accuracy; points above `pre_scaler`; step"
    print_head(title, "parameters; devices", *SIZED)
    for name, sizes in SIZES.items():
        print_sizes(open_result(args.results, name), sizes)
    print_head("Other sizes: validation accuracy by step", "uplink", *map(str, STEPS))
    for name, sizes in TUNED.items():
        print_validation(open_result(args.results, name), sizes)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
