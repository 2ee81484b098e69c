"""What a sweep over protocols, deadlines or power policies comes to in time and energy: accuracy at
the end, its gain on the first row's (points, 95 % interval over pairs of trials), updates used and
lost, joules by cause, devices left; each at the step size that validation data favour.

    otafl sweep studies/time_and_energy/deadline_stragglers.yaml
    python -m studies.time_and_energy.analyse results/deadline_stragglers [--figure time.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import select_final
from studies.common.tables import command, format_points

PLAIN = {"fedavg", "rounds", "drop", "null", "nan"}
OTHER = {"final_round", "learning_rate"}
"""Values, and coordinates, that are not worth saying in a row's name."""


def format_titles(ds: xr.Dataset, dim: str) -> list[str]:
    """A name for each place along a dim, of all its coordinates."""
    coords = [c for c in ds.coords.values() if c.dims == (dim,) and c.name not in {dim, *OTHER}]
    rows = zip(*(c.values for c in coords or [ds[dim]]), strict=True)
    return [" ".join(t for v in row if (t := f"{v}") not in PLAIN) or "all" for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--figure", type=Path, default=Path("time_and_energy.png"))
    args = parser.parse_args()
    best = otafl.select_tuned(otafl.open_results(args.result), over="learning_rate")
    first, *others = best["final_round"].dims
    names = format_titles(best, str(first))
    ends = {name: select_final(best, name) for name in ("test_accuracy", "sim_time_s", "present")}
    used, lost = select_final(best, "updates_used"), select_final(best, "updates_lost")
    joules = select_final(best, "device_energy_j").sum("device")
    whole = best["present"] > best.sizes["device"] / 2  # more than half of the cell is there
    dies = (best["present"] <= best.sizes["device"] / 2).any("round")
    half_s = best["sim_time_s"].where(whole).max("round").where(dies)
    half = best["test_accuracy"].where(best["sim_time_s"] == half_s).max("round") * 100
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for place in np.ndindex(*(best.sizes[d] for d in others)):
        at = dict(zip(map(str, others), place, strict=True))
        said = ", ".join(f"{d} = {best[d].values[i]}" for d, i in at.items())
        print(f"\n{said or 'All'}: mean and spread of {best.sizes['trial']} trials\n")
        causes = " | ".join(f"{c} J" for c in best["cause"].values)
        titled = "seconds | half gone after | accuracy then | updates used | lost | devices left"
        print(f"| | accuracy | minus {names[0]} | {titled} | {causes} | step |")
        print("|---|" + "---|" * (9 + best.sizes["cause"]))
        accuracy = ends["test_accuracy"].isel(at)
        for row, title in enumerate(names):
            here = at | {str(first): row}
            values = [ends["test_accuracy"] * 100, ends["sim_time_s"], half_s, half, used, lost]
            values.append(ends["present"])
            cells = [format_mean_std(v.isel(here).values) for v in values]
            gain = format_points(*(accuracy.isel({str(first): i}) for i in (row, 0)))
            cells.insert(1, gain if row else "")
            cells += [f"{v:.3g}" for v in joules.isel(here).mean("trial").values]
            print(
                f"| {title} | {' | '.join(cells)} | {best['learning_rate'].isel(here).item():g} |"
            )
            if not any(place):
                style = {"color": f"C{row % 10}", "ls": "-" if row < 10 else "--", "label": title}
                one = best.isel(here).isel(trial=0).dropna("round", subset=["sim_time_s"])
                axes[0].plot(one["sim_time_s"], one["test_accuracy"], **style)
                drawn = one["device_energy_j"].sum(("device", "cause"))
                died, cost = (one["sim_time_s"], one["present"]), (drawn, one["test_accuracy"])
                axes[1].plot(*(died if dies.any() else cost), **style)
    axes[0].set(xlabel="simulated time (s)", ylabel="test accuracy of the global model")
    if dies.any():
        axes[1].set(xlabel="simulated time (s)", ylabel="devices that are there")
    else:
        axes[1].set(xlabel="energy of all devices (J)", ylabel="test accuracy", xscale="log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    command(main)
