"""Tables II and III of the TDPFed paper (Wang, Jin, Liu, Zong, Shao, Li), their MNIST columns on
Fashion-MNIST, from the results of scenarios/papers/tdpfed_*.yaml.

    for f in table2 table3_rivals table3_sar table3_alone; do
      otafl sweep scenarios/papers/tdpfed_$f.yaml
    done
    python scripts/reproduce_tdpfed.py [results] [--figure tdpfed.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt
from tables import head, opened, row

from otafl.analysis.summary import spread
from otafl.plots import COLOURS, LINES
from otafl.results.ending import final

GLOBAL, PERSONAL = "own_test_accuracy", "personal_own_test_accuracy"
TABLE_2 = {("afm", 2.0): 98.97, ("act", 2.0): 99.07, ("afm", 1.5): 99.08, ("act", 1.5): 98.07}
TABLE_3 = (  # method, paper (MNIST), whose model the paper's number is
    ("TDPFed x1.5", 99.04, PERSONAL),
    ("TDPFed x2", 99.16, PERSONAL),
    ("FedAvg", 96.78, GLOBAL),
    ("pFedMe", 98.64, PERSONAL),
)
SUBSETS = (
    ("FedAvg (s.a.r.) x1.5", 96.15),
    ("FedAvg (s.a.r.) x2", 95.80),
    ("FedAvg, sent alone are averaged, x1.5", ""),
    ("FedAvg, sent alone are averaged, x2", ""),
)


def cells(one: xr.Dataset, variable: str) -> tuple[str, str]:
    """In percent, after the last round and at the best one."""
    if variable not in one or not bool(one[variable].notnull().any()):
        return "-", "-"
    values = 100.0 * one[variable]
    best = values.sel(round=slice(1, None)).max("round")
    return spread((100.0 * final(one, variable)).values), spread(best.values)


def symbols(one: xr.Dataset) -> str:
    """Reals that a device sends in a round."""
    last = int(one["round"].max())
    each = one["uplink_symbols"].sel(round=last) / last
    return f"{float(each.mean()):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--figure", type=Path, default=Path("tdpfed.png"))
    args = parser.parse_args()
    columns = ("personal, last", "personal, best", "global, last", "global, best")
    second = opened(args.results, "tdpfed_table2")
    majority = 100.0 * float(second["majority_accuracy"].mean())
    rounds, trials = int(second["round"].max()), second.sizes["trial"]
    head(
        f"Table II: {rounds} rounds, {trials} trials; the majority class alone: {majority:.1f} %",
        *("aggregation", "compression", "paper (MNIST)", *columns, "prox gap"),
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for place, name in enumerate(second["aggregation"].values):
        for rate in second["compression_rate"].values:
            one = second.sel(aggregation=name, compression_rate=rate)
            if not bool(one[PERSONAL].notnull().any()):  # an unfinished sweep
                continue
            gap = spread(final(one, "prox_gap").values)
            paper = TABLE_2.get((str(name), float(rate)), "")
            row(name, f"x{rate:g}", paper, *cells(one, PERSONAL), *cells(one, GLOBAL), gap)
            label, colour = f"{name} x{rate:g}", COLOURS[place]
            line = LINES[int(rate == 2)]
            curve = one[PERSONAL].mean("trial")
            left.plot(curve["round"], curve, label=label, color=colour, ls=line)
    third = opened(args.results, "tdpfed_table3_rivals")
    subsets = opened(args.results, "tdpfed_table3_sar")
    alone = opened(args.results, "tdpfed_table3_alone")
    rounds, trials = int(third["round"].max()), third.sizes["trial"]
    head(
        f"Table III: {rounds} rounds, {trials} trials",
        *("method", "paper (MNIST)", *columns, "reals that a device sends in a round"),
    )
    for place, (method, paper, variable) in enumerate(TABLE_3):
        one = third.isel(zip=place)
        row(method, paper, *cells(one, PERSONAL), *cells(one, GLOBAL), symbols(one))
        curve = one[variable].mean("trial")
        right.plot(curve["round"], curve, label=method, color=COLOURS[place], ls=LINES[place])
    row("each device alone", "", *cells(alone, PERSONAL), *cells(alone, GLOBAL), symbols(alone))
    for place, (method, printed) in enumerate(SUBSETS):
        one = subsets.isel(zip=place)
        share = "2/3" if "x1.5" in method else "1/2"
        row(method, printed, "-", "-", *cells(one, GLOBAL), f"{share} of {symbols(one)}")
    for axis, title in ((left, "Table II: personal models"), (right, "Table III")):
        axis.set(title=title, xlabel="round", ylabel="accuracy on own test samples")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    main()
