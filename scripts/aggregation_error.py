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

import otafl

STUDIES = {
    "nmse_snr": ("snr_db", "SNR (dB)"),
    "nmse_devices": ("device_count", "devices"),
    "nmse_csi": ("variance", "variance of the channel estimate's error"),
    "nmse_antennas": ("antennas", "server antennas"),
}
MARKERS = "osD^v<>PX*phd"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("results/aggregation_error.png"))
    args = parser.parse_args()
    figure, axes = plt.subplots(2, 2, figsize=(12, 9), layout="constrained", sharey=True)
    styles: dict[str, dict[str, object]] = {}
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
            style = {"color": f"C{len(styles) % 10}", "marker": MARKERS[len(styles)]}
            style = styles.setdefault(str(name), style | {"ls": "-" if len(styles) < 10 else "--"})
            one = middle.sel(power=name)
            axis.plot(one[dim], one, label=name, ms=5, **style)
        axis.set(yscale="log", xlabel=label, ylabel="normalised squared error", ylim=(1e-4, 1e2))
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
    handles = {h.get_label(): h for a in axes.flat for h in a.get_lines()}
    handles = {name: h for name, h in handles.items() if name in styles}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", title="power")
    figure.savefig(args.out, dpi=150)
    print(f"\n{args.out}")


if __name__ == "__main__":
    main()
