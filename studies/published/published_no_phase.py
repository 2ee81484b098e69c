"""Two uplinks without phase beside what is published of them: majority votes with and without
absentees, and sums of energies (REED) beside their authors' program.

    otafl sweep studies/published/majority_votes.yaml
    otafl sweep studies/published/majority_votes_steps.yaml
    otafl sweep studies/published/reed.yaml
    python -m studies.published.published_no_phase [results] [--figures .]
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import xarray as xr

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import select_final
from studies.common.looks import draw_errorbars, make_frame, save
from studies.common.tables import (
    command,
    format_points,
    open_grids,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000")
PROGRAM = Path(__file__).parent / "data" / "reed_program.csv"
"""What REED's own program gave, at every twentieth round."""


def compare_votes(results: Path, figures: Path) -> None:
    tried = open_grids(results, ("majority_votes", "majority_votes_steps"), "step")
    best = otafl.select_tuned(tried, over="step")
    accuracy, snr = select_final(best, "test_accuracy"), best["snr_db"].values
    joules = select_final(best, "tx_energy_j").mean("trial")
    print_head(
        "Majority votes: accuracy (step)", "data", "who votes", *(f"{db:g} dB" for db in snr)
    )
    figure, axes = make_frame(2, "test accuracy, mean ± deviation")
    titles = ("IID", "two of ten classes")
    for axis, title, part in zip(axes, titles, accuracy["partition"].values, strict=True):
        here = accuracy.sel(partition=part).transpose("absentee", "snr_db", "trial")
        steps = best["step"].sel(partition=part).transpose("absentee", "snr_db").values
        for i, name in enumerate(("all", "those who are sure")):
            pairs = zip(here[i], steps[i], strict=True)
            print_row(
                title,
                name,
                *(f"{format_mean_std(one.values)} ({step:g})" for one, step in pairs),
            )
            draw_errorbars(axis, snr, here[i], label=name, color=COLOURS[i], marker="os"[i])
        gains = (format_points(sure, every) for every, sure in zip(*here, strict=True))
        print_row(title, "points gained by absentees", *gains)
        radiated = joules.sel(partition=part).transpose("absentee", "snr_db").values
        print_row(title, "energy, of all", *(f"{share:.0%}" for share in radiated[1] / radiated[0]))
        axis.set(title=title, xlabel="SNR (dB)", ylim=(0.5, 0.8))
    save(figure, axes[0], figures / "majority_votes.png")


def run_program() -> dict[tuple[str, str], np.ndarray]:
    """Return what REED's program gave: (data, uplink) -> accuracy [repeat, round]."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    with PROGRAM.open() as file:
        for one in csv.DictReader(file):
            repeats = found.setdefault((one["data"], one["uplink"]), {})
            repeats.setdefault(one["repeat"], []).append(float(one["accuracy"]))
    return {key: np.array(list(repeats.values())) for key, repeats in found.items()}


def format_values(values: np.ndarray, base: np.ndarray) -> list[str]:
    """Tell how accuracies [repeat, round] end, and how far above others."""
    end, other = (xr.DataArray(each[:, -1], dims="trial") for each in (values, base))
    return [format_mean_std(end.values), "-" if end.equals(other) else format_points(end, other)]


def compare_energies(results: Path, figures: Path) -> None:
    ds, theirs = open_result(results, "reed"), run_program()
    names = ("no channel", 'REED, "-10 dB"', "REED, -10 dB")
    above = "points above no channel"
    columns = ("data", "uplink", "its program", above, "otafl", above, "error")
    print_head(f"REED: accuracy after {int(ds['round'].max())} rounds", *columns)
    figure, axes = make_frame(2, "test accuracy, mean")
    for axis, title, part in zip(
        axes, ("IID", "Dirichlet, 0.3"), ds["partition"].values, strict=True
    ):
        here = ds["test_accuracy"].sel(partition=part).transpose("zip", "trial", "round")
        errors = select_final(ds, "aggregation_nmse").sel(partition=part).mean("trial")
        for i, name in enumerate(names):
            its, cells = theirs.get((title, name)), ["-", "-"]
            if its is not None:
                axis.plot(here["round"], its.mean(0), "o", mfc="none", color=COLOURS[i])
                cells = format_values(its, theirs[title, names[0]])
            axis.plot(here["round"], here[i].mean("trial"), color=COLOURS[i], label=name)
            print_row(
                title,
                name,
                *cells,
                *format_values(here[i].values, here[0].values),
                f"{float(errors[i]):.3g}",
            )
        axis.set(title=f"{title} (o: its program)", xlabel="round", ylim=(0.69, 0.8))
        axis.set_xlim(15, 105)
    save(figure, axes[0], figures / "reed.png")


def main() -> None:
    args = parse_study_arguments(__doc__)
    for part in (compare_votes, compare_energies):
        part(args.results, args.figures)


if __name__ == "__main__":
    command(main)
