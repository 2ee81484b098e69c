"""Is pFedBreD's gain its prior's, or that of a Per-FedAvg step? Each strategy at its best settings
on validation samples, where training alone is not enough; and Table 1 beside the paper.

    otafl sweep studies/personal/personal_small_data.yaml
    otafl sweep studies/pfedbred/personal_prior.yaml
    python -m studies.pfedbred.prior_or_step [results] [--figure pfedbred.png]
"""

from __future__ import annotations

import re

import xarray as xr
from matplotlib import pyplot as plt

from otafl.results.end_values import select_end_total
from studies.common.looks import TYPE, compute_half_interval
from studies.common.tables import (
    command,
    compute_gain,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)
from studies.pfedbred.analyse import format_percent, iterate_table_1

ARMS = (  # name, what its label has, the prior's mean, whether w takes a Per-FedAvg step besides
    ("local only", "local_only(", "-", "-"),
    ("pFedMe", "pfedme(", "w", "no"),
    ("lg", "strategy=lg,", "w - gradient", "no"),
    ("meg", "strategy=meg,", "w - memory", "no"),
    ("mh, the prior alone", "variant=paper,", "w - gradient - memory", "no"),
    ("mh, the step alone", "eta=0,", "w", "yes"),
    ("mh, as programmed", "strategy=mh,", "w - memory", "yes"),
)
ALONE, BASE = "local only", "pFedMe"
SHORT = {"learning_rate": "step", "personal_learning_rate": "own", "eta_alpha": "eta"}
"""Settings, as the table names them."""


def find_best(runs: dict[str, xr.Dataset], own: str) -> tuple[xr.DataArray, str]:
    """Accuracy [trial] of an arm at the settings that are best on validation samples, and those
    that several values were tried of; `*` marks the least and the most.
    """
    apart = {"variant=paper,", "eta=0,"} - {own}
    mine = {k: v for k, v in runs.items() if own in k and not any(one in k for one in apart)}
    chosen = max(mine, key=lambda label: float(mine[label]["validation"].mean()))
    said = {one: dict(re.findall(r"(\w+)=([\d.]+)", one)) for one in mine}
    cells = []
    for key, value in said[chosen].items():
        tried = sorted({float(one.get(key, value)) for one in said.values()})
        mark = "*" if float(value) in (tried[0], tried[-1]) else ""
        cells += [f"{SHORT.get(key, key)} {value}{mark}"] if len(tried) > 1 else []
    return mine[chosen]["test"], f"{', '.join(cells)} (of {len(mine)})"


def main() -> None:
    args = parse_study_arguments(__doc__, "pfedbred.png")
    runs = {}
    for name in ("personal_small_data", "personal_prior"):
        result = open_result(args.results, name)
        kinds = ("validation", "test")
        found = xr.Dataset(
            {k: select_end_total(result, f"personal_own_{k}_accuracy") for k in kinds}
        )
        (points,) = {*found.dims} - {"trial"}
        labels = [f"{label}".replace(")", ",") for label in result["algorithm"].values]
        runs |= {label: found.isel({points: i}) for i, label in enumerate(labels)}
    arms = {name: find_best(runs, own) for name, own, *_ in ARMS}
    columns = ("prior's mean", "Per-FedAvg step", "accuracy, %", f"minus {BASE}", "chosen")
    print_head("Where training alone is not enough", "model", *columns)
    gains = {}
    for name, _, mean, step in ARMS:
        values, chosen = arms[name]
        gains[name] = 100 * compute_gain(values, arms[BASE][0])
        difference = "{:.1f} [{:.1f}, {:.1f}]".format(*gains[name].round(1) + 0.0)  # no -0.0
        print_row(name, mean, step, format_percent(values), difference, chosen)
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    table = {name: (paper, one) for name, paper, one in iterate_table_1(args.results, "mclr")}
    table = {name[:-4]: pair for name, pair in table.items() if name.endswith("(P)")}
    shown = [name for name, (paper, _) in table.items() if paper]
    best = {name: 100 * table[name][1].max("round") for name in [*shown, ALONE]}
    ours = {name: float(values.mean()) for name, values in best.items()}
    shown.sort(key=lambda name: ours[name])
    paper = [float(table[name][0]) for name in shown]
    left.plot(paper, shown, "s", color="#D55E00", mfc="none", ms=8, label="paper")
    halves = [float(compute_half_interval(best[name])) for name in shown]
    style = {"fmt": "o", "color": "#0072B2", "capsize": 3}
    left.errorbar(
        [ours[name] for name in shown], shown, xerr=halves, label="ours, 95 % interval", **style
    )
    left.axvline(ours[ALONE], color="black", ls="--", label="training alone, ours")
    left.set(title="Table 1, MCLR", xlabel="accuracy on own test samples, %", xlim=(91.7, 99.4))
    left.legend(fontsize="small")
    for name in [one for one, *_ in reversed(ARMS) if one not in (ALONE, BASE)]:
        mean, low, high = gains[name]
        right.errorbar(mean, name, xerr=[[mean - low], [high - mean]], fmt="oC0", capsize=3)
    right.axvline(0, color="black", lw=1)
    said = "points above pFedMe, 95 % interval"
    right.set(title="40 training images a device", xlabel=said, ylim=(-0.5, 4.5))
    figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    command(main)
