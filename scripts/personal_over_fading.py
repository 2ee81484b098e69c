"""Which personalised methods survive a fading uplink: accuracy by SNR, step sizes chosen on
validation data, from the results of scenarios/studies/personal_fading.yaml and _low.yaml.

    otafl sweep scenarios/studies/personal_fading.yaml
    otafl sweep scenarios/studies/personal_fading_low.yaml
    python scripts/personal_over_fading.py [results] [--figure personal_fading.png]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from tables import head, opened, row

import otafl
from otafl.analysis.summary import spread
from otafl.plots import COLOURS, LINES, MARKERS
from otafl.results.ending import final

GLOBAL = "test_accuracy"


def personal(name: str) -> str:
    """What stands for a method's personal model: of FedAvg the fine-tuned one."""
    return "tuned_own" if name == "fedavg" else "personal_own"


def chosen(ds: xr.Dataset) -> dict[str, xr.Dataset]:
    """Method -> its result over SNR, at the step size that is best on validation samples."""
    labels = [str(label) for label in ds["algorithm"].values]
    names = [label.partition("(")[0] for label in labels]
    out = {}
    for name in dict.fromkeys(names):
        points = ds.isel(zip=[i for i, one in enumerate(names) if one == name])
        validation = final(points, f"{personal(name)}_validation_accuracy").fillna(0.0)
        if not bool((validation > 0).any()):  # an unfinished sweep
            continue
        out[name] = points.isel(zip=validation.mean("trial").argmax("zip"))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--figure", type=Path, default=Path("personal_fading.png"))
    args = parser.parse_args()
    ds = opened(args.results, "personal_fading")
    try:
        low = opened(args.results, "personal_fading_low")
    except otafl.UserError as error:  # it has not been run
        print(f"far below the noise: left out: {error}", file=sys.stderr)
    else:
        ds = xr.concat(
            [low, ds], "snr_db", data_vars="minimal", coords="minimal", compat="override"
        )
    methods = chosen(ds)
    snr = ds["snr_db"].values
    levels = [f"{value:g} dB" for value in snr]
    majority = float(ds["majority_accuracy"].mean())
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for axis, kind in zip(axes, ("personal", "global"), strict=True):
        head(f"{kind} model, %", "method", *levels)
        for place, (name, one) in enumerate(methods.items()):
            variable = GLOBAL if kind == "global" else f"{personal(name)}_test_accuracy"
            if not bool(one[variable].notnull().any()):  # the method has no global model
                continue
            values = 100.0 * final(one, variable)
            row(name, *(spread(values.sel(snr_db=level).values) for level in snr))
            axis.errorbar(
                *(np.arange(len(snr)), values.mean("trial"), values.std("trial", ddof=1)),
                label=name,
                color=COLOURS[place % len(COLOURS)],
                ls=LINES[(place + 2 * (place // len(COLOURS))) % len(LINES)],
                marker=MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
                capsize=2,
            )
        axis.set(title=f"{kind} models", xlabel="SNR [dB]", ylabel="test accuracy [%]")
        axis.set_xticks(np.arange(len(snr)), [f"{value:g}" for value in snr])
        axis.grid(alpha=0.3)
    axes[0].axhline(100 * majority, color="grey", lw=1, label="majority class")
    axes[0].legend(fontsize="small", ncols=2)
    figure.savefig(args.figure, dpi=150)
    print(f"\nmajority class alone: {100 * majority:.1f} %")


if __name__ == "__main__":
    main()
