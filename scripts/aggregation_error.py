"""Aggregation error of every power policy against SNR, devices, channel knowledge and antennas,
from the studies' results.

    for s in nmse_snr nmse_devices nmse_csi nmse_antennas; do
      otafl run scenarios/studies/$s.yaml --out results/$s.nc
    done
    python scripts/aggregation_error.py [--folder results] [--out results/aggregation_error.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from looks import POLICIES, TYPE, policy

import otafl

STUDIES = {
    "nmse_snr": ("snr_db", "SNR (dB)"),
    "nmse_devices": ("device_count", "devices"),
    "nmse_csi": ("variance", "variance of the channel estimate's error"),
    "nmse_antennas": ("antennas", "server antennas"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("results/aggregation_error.png"))
    args = parser.parse_args()
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.8), layout="constrained", sharey=True)
    for axis, (study, (dim, label)) in zip(axes.flat, STUDIES.items(), strict=True):
        error = otafl.open_results(args.folder / f"{study}.nc").aggregation_nmse.isel(round=-1)
        # inversion's error has no mean over Rayleigh fading, so trials are summed up by medians
        middle, low, high = (error.quantile(q, "trial").drop_vars("quantile") for q in (0.5, 0, 1))
        print(f"\n{study}: median of {error.sizes['trial']} trials (lowest to highest)")
        rows = middle.transpose("power", dim).to_pandas()
        print("| power | " + " | ".join(f"{x:g}" for x in rows.columns) + " |")
        print("|---|" + "---|" * len(rows.columns))
        for name, row in rows.iterrows():
            ends = low.sel(power=name).values, high.sel(power=name).values
            cells = (f"{m:.2g} ({a:.2g} to {b:.2g})" for m, a, b in zip(row, *ends, strict=True))
            print(f"| {name} | " + " | ".join(cells) + " |")
        for name in middle.power.values:
            one = middle.sel(power=name)
            axis.plot(one[dim], one, label=name, **policy(str(name)))
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
    figure.savefig(args.out, dpi=150)
    print(f"\n{args.out}")


if __name__ == "__main__":
    main()
