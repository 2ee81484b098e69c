"""Airtime and radiated joules until 80 % test accuracy, analogue beside digital, each at the step
size that validation data favour.

    otafl sweep scenarios/studies/analog_vs_digital.yaml
    python scripts/analog_vs_digital.py [results/analog_vs_digital] [--figure analog_vs_digital.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import otafl

MARKERS = "osD^v<>PX*"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", nargs="?", type=Path, default=Path("results/analog_vs_digital"))
    parser.add_argument("--figure", type=Path, default=Path("analog_vs_digital.png"))
    args = parser.parse_args()
    best = otafl.tuned(otafl.open_results(args.result), over="learning_rate")
    costs = otafl.to_reach(best, "test_accuracy", 0.8)
    (joint,) = best["transport"].dims
    columns = (best[name].values for name in ("transport", "power", "codec"))
    names = [
        " ".join(part for part in (t, p, c) if part not in ("identity", "full"))
        for t, p, c in zip(*(map(str, column) for column in columns), strict=True)
    ]
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for axis, (name, label) in zip(
        axes,
        {"airtime_s": "uplink airtime (s)", "tx_energy_j": "radiated (J)"}.items(),
        strict=True,
    ):
        reached = costs[name].transpose(joint, "snr_db", "trial")
        print(f"\n{label} to 80 %: median of {reached.sizes['trial']} trials (lowest to highest)")
        snrs = [f"{snr:g} dB" for snr in reached.snr_db.values]
        print("| uplink | " + " | ".join(snrs) + " |\n|---|" + "---|" * len(snrs))
        for place, (title, rows) in enumerate(zip(names, reached.values, strict=True)):
            cells = [
                "not reached"
                if np.isnan(v).any()
                else f"{np.median(v):.3g} ({v.min():.3g} to {v.max():.3g})"
                for v in rows
            ]
            print(f"| {title} | " + " | ".join(cells) + " |")
            style = {"color": f"C{place}", "marker": MARKERS[place], "ms": 5}
            axis.plot(reached.snr_db, np.median(rows, -1), label=title, **style)
        axis.set(xlabel="SNR (dB)", ylabel=f"{label} to 80 %", yscale="log")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
