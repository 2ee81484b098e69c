"""Aggregation error of every power policy against SNR, devices, channel knowledge and antennas,
from the studies' results: policies that keep their budget in every round, then those that keep it
on the average over fading.

    for s in nmse_snr nmse_devices nmse_csi nmse_antennas; do
      otafl run studies/physical_layer/$s.yaml --out results/$s.nc
    done
    python -m studies.physical_layer.aggregation_error [results] [--figure aggregation_error.png]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from studies.common.looks import PEAK_TCI, POLICIES, TYPE, get_policy_style
from studies.common.tables import (
    classify_budgets,
    command,
    compute_gain,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

STUDIES = {
    "nmse_snr": ("snr_db", "SNR (dB)"),
    "nmse_devices": ("device_count", "devices"),
    "nmse_csi": ("variance", "variance of the channel estimate's error"),
    "nmse_antennas": ("antennas", "server antennas"),
}
TOLD = {
    "nmse_snr": [-20, -10, 0, 20],
    "nmse_antennas": [1, 4, 16, 64],
}
"""Columns of the two tables; the figure has more."""
SAME_AS_FULL = "open_loop"
"""Policy whose errors are those of full power, because all devices have one distance."""
PAIRS = (
    ("smcv", "cao_static"),
    ("cao_average", "cao_static"),
    ("tci", PEAK_TCI),
    (PEAK_TCI, "cao_static"),
)
"""Policies whose errors are compared trial by trial."""


def main() -> None:
    args = parse_study_arguments(__doc__, "aggregation_error.png")
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.8), layout="constrained", sharey=True)
    for axis, (study, (dim, label)) in zip(axes.flat, STUDIES.items(), strict=True):
        result = open_result(args.results, study)
        error = result.aggregation_nmse.isel(round=-1).transpose("power", dim, "trial")
        if study in TOLD:
            tell(study, error, classify_budgets(result))
        for name in error.power.values:
            # inversion's error has no mean over Rayleigh fading, so trials are summed up by medians
            one = error.sel(power=name).median("trial")
            axis.plot(one[dim], one, label=name, **get_policy_style(str(name)))
        axis.set(yscale="log", xlabel=label, ylim=(1e-4, 1e2))
        if dim in ("device_count", "antennas"):
            axis.set_xscale("log")
            axis.set_xticks(error[dim].values, error[dim].values)
            axis.minorticks_off()
        if dim == "variance":
            axis.set_xscale("symlog", linthresh=1e-3, linscale=0.5)
            axis.set_xlim(-1e-4, 1.2)
            axis.set_xticks([0, 1e-3, 1e-2, 1e-1, 1], ["0", "0.001", "0.01", "0.1", "1"])
        axis.axhline(1.0, color="0.6", lw=0.8, zorder=0)
        axis.grid(alpha=0.3)
    figure.supylabel("normalised squared error", fontsize=12)
    drawn = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    order = [name for name in POLICIES if name in drawn]
    handles = [drawn[name] for name in order]
    figure.legend(handles, order, loc="outside lower center", ncols=4, title="power policy")
    figure.savefig(args.figure, dpi=130)
    print(f"\n{args.figure}")


def tell(study: str, error: xr.DataArray, state: dict[str, str]) -> None:
    """Print the errors [power, x, trial], and those of PAIRS over each other."""
    error = error.sel({error.dims[1]: TOLD[study]})
    columns = [f"{x:g}" for x in error[error.dims[1]].values]
    title = f"{study}: median of {error.sizes['trial']} trials (lowest to highest)"
    print_head(title, "power (budget)", *columns)
    for budget in ("none", "peak", "average"):
        for one in error:
            if state[name := str(one.power.values)] == budget and name != SAME_AS_FULL:
                print_row(f"{name} ({budget})", *map(_format_cell, one.values))
    pairs = [pair for pair in PAIRS if {*pair} <= {*error.power.values}]
    if pairs:
        print_head(
            f"{study}, the same trials: geometric mean (95 % interval)", "ratio of errors", *columns
        )
    for name, base in pairs:
        ratios = np.exp(compute_gain(np.log(error.sel(power=name)), np.log(error.sel(power=base))))
        cells = (f"{mean:.3g} [{low:.3g}, {high:.3g}]" for mean, low, high in ratios)
        print_row(f"{name} / {base}", *cells)


def _format_cell(trials: np.ndarray) -> str:
    return f"{np.median(trials):.2g} [{trials.min():.2g}, {trials.max():.2g}]"


if __name__ == "__main__":
    command(main)
