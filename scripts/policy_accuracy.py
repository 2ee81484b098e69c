"""Accuracy by power policy and SNR, each at its best step size on validation data, beside the
error-free uplink; says which policies collapse and which come within a point of it.

    otafl sweep scenarios/studies/policies.yaml
    python scripts/policy_accuracy.py [results/policies] [--figure policy_accuracy.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from looks import TYPE, policy
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import spread
from otafl.results.ending import final

COLLAPSE = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", nargs="?", type=Path, default=Path("results/policies"))
    parser.add_argument("--figure", type=Path, default=Path("policy_accuracy.png"))
    args = parser.parse_args()
    best = otafl.tuned(otafl.open_results(args.result), over="learning_rate")
    (joint,) = {best["power"].dims[0]}
    names = ["ideal", *map(str, best["power"].values[1:])]
    accuracy = final(best, "test_accuracy").fillna(0.1)  # a diverged model guesses
    accuracy = accuracy.transpose("partition", joint, "snr_db", "trial")
    snrs = [f"{snr:g} dB" for snr in accuracy.snr_db.values]
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 6), layout="constrained", sharey=True)
    for axis, of_partition in zip(axes, accuracy, strict=True):
        title = str(of_partition.partition.values)
        print(f"\n{title}: test accuracy, mean ± deviation of {best.sizes['trial']} trials")
        print("| power | " + " | ".join(snrs) + " |\n|---|" + "---|" * len(snrs))
        ideal = of_partition.values[0].mean(-1)
        for name, values in zip(names, of_partition.values, strict=True):
            print(f"| {name} | " + " | ".join(spread(trials) for trials in values) + " |")
            style = policy("none" if name == "ideal" else name)
            mean, deviation = values.mean(-1), values.std(-1, ddof=1)
            axis.errorbar(accuracy.snr_db, mean, deviation, label=name, capsize=2, **style)
        mean = of_partition.mean("trial").values[1:]
        for what, found in (
            ("collapses (below 0.3)", mean < COLLAPSE),
            ("within a point of ideal", mean > ideal - 0.01),
        ):
            where = [f"{names[i + 1]} at {snrs[j]}" for i, j in np.argwhere(found)]
            print(f"{what}: {', '.join(where) or 'nothing'}")
        axis.set(title=title, xlabel="SNR (dB)", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
