"""What to send with: accuracy of every uplink at equal channel uses, and at equal radiated energy,
each at the step that validation data favour there, beside `power: pre_scaler` trial by trial.

    otafl sweep scenarios/studies/field.yaml
    python scripts/field.py [results] [--figure field.png]
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from looks import TYPE, UPLINKS
from matplotlib import pyplot as plt
from tables import (
    compute_gain,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

NAMES = [name for _, names in UPLINKS.values() for name in names]
COLOURS = [colour for colour, names in UPLINKS.values() for _ in names]
BASE, FULL = NAMES.index("pre_scaler"), NAMES.index("FSK-MV")
CHANNELS = ("Rayleigh, 10 dB", "Rayleigh, -10 dB", "urban cell, 1 mW")
T_95 = 2.262
"""Half a confidence interval of ten trials, in standard errors."""


def find_best(ds: xr.Dataset, spent: xr.DataArray, budget: xr.DataArray) -> xr.DataArray:
    """Test accuracy at each point's best step, [channel, zip, trial]; tells the steps."""
    step = ds["server_learning_rate"]
    choice = (
        interpolate_at_cost(ds, "validation_accuracy", spent, budget)
        .mean("trial")
        .argmax(step.name)
    )
    print_head("Steps, in units of the scenario's", "uplink", *CHANNELS)
    for name, places in zip(NAMES, choice.transpose("zip", "channel").values, strict=True):
        ends = (0, step.size - 1)
        print_row(name, *(f"{step.values[i]:g}" + " (end)" * (i in ends) for i in places))
    chosen = interpolate_at_cost(ds, "test_accuracy", spent, budget).isel({step.name: choice})
    return chosen.transpose("channel", "zip", "trial")


def print_table(title: str, accuracy: xr.DataArray) -> None:
    gains = 100 * compute_gain(accuracy, accuracy.isel(zip=BASE))
    print_head(f"At {title}: accuracy, and points above `pre_scaler`", "uplink", *CHANNELS)
    for j, name in enumerate(NAMES):
        cells = [f"{float(mean):.3f}" for mean in accuracy.isel(zip=j).mean("trial")]
        for i, (mean, low, high) in enumerate(gains[:, j]):
            cells[i] += f" ({mean:+.1f}: {low:+.1f} to {high:+.1f})" * (j != BASE)
        print_row(name, *cells)


def main() -> None:
    args = parse_study_arguments(__doc__, "field.png")
    ds = open_result(args.results, "field")
    most = ds.isel(zip=FULL).max(["round", "trial", "server_learning_rate"])
    budgets = {
        "equal channel uses": (ds["uplink_symbols"], most["uplink_symbols"]),
        "equal energy": (ds["tx_energy_j"], most["tx_energy_j"] / 10),
    }
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 3, figsize=(10, 5.5), layout="constrained", sharey=True)
    marks = ("o", "full", 0.17), ("s", "none", -0.17)
    for (title, budget), (marker, fill, up) in zip(budgets.items(), marks, strict=True):
        accuracy = find_best(ds, *budget)
        print_table(title, accuracy)
        half = T_95 * accuracy.std("trial", ddof=1) / accuracy.sizes["trial"] ** 0.5
        style = {"marker": marker, "fillstyle": fill, "ls": "", "ms": 6}
        for axis, means, halves in zip(axes, accuracy.mean("trial"), half, strict=True):
            for j, (mean, error) in enumerate(zip(means.values, halves.values, strict=True)):
                axis.errorbar(mean, up - j, xerr=error, color=COLOURS[j], **style)
        axes[0].plot([], [], color="0.5", label=title, **style)
    for kind, (colour, _) in UPLINKS.items():
        axes[0].plot([], [], color=colour, lw=4, label=kind)
    for axis, title in zip(axes, CHANNELS, strict=True):
        axis.set(title=title, xlim=(0, 1), xlabel="test accuracy", xticks=(0.2, 0.4, 0.6, 0.8))
        axis.set_yticks(-np.arange(len(NAMES)), NAMES)
        axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
