"""Accuracy under attack by uplink and robust rule, and what each costs without attackers.

otafl sweep scenarios/studies/robust.yaml
python scripts/robust.py [results/robust] [--figure robust.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr
from looks import TYPE
from matplotlib import pyplot as plt
from tables import command, format_points, print_head, print_row

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end

WORDS = {
    "over_the_air": "sum",
    "fsk_majority_vote": "votes",
    "type_based": "counts, median",
    "digital": "packets",
}
TITLES = {"iid": "IID"}
"""Of a partition; the other has two classes a device."""
DRAWN = {
    "sum": ("#000000", "o"),
    "10 groups, geometric median": ("#0072B2", "s"),
    "votes": ("#E69F00", "v"),
    "counts, median": ("#009E73", "^"),
    "packets, geometric median": ("#56B4E9", "D"),
    "packets, multi krum": ("#D55E00", "P"),
}
"""Uplinks of the figure, with colour and marker."""


def label(result: xr.Dataset, place: int) -> str:
    """Write uplink, groups and rule of an entry of the scenario's joint axis."""
    transport = str(result["transport"].values[place]).partition("(")[0]
    groups, rule = (str(result[name].values[place]) for name in ("groups", "rule"))
    text = WORDS[transport]
    if transport == "over_the_air" and groups != "1":
        text = f"{groups} groups"
    return text if rule == "mean" else f"{text}, {rule.replace('_', ' ')}"


def title(partition: object) -> str:
    return TITLES.get(str(partition), "two classes a device")


def compare_costs(result: xr.Dataset, accuracy: xr.DataArray, labels: list[str]) -> None:
    """Print accuracy and channel uses without attackers."""
    rounds = int(result["round"].values[-1])
    clean = accuracy.sel(byzantine=0).isel(attack=0)
    uses = select_at_end(result, "uplink_symbols").sel(byzantine=0).isel(attack=0).mean("trial")
    print_head(
        "Without attackers: points of test accuracy against the sum, paired",
        *("uplink", *map(title, accuracy["partition"].values), "channel uses a round"),
    )
    for place, name in enumerate(labels):
        cells = []
        for part in accuracy["partition"].values:
            own = clean.sel(partition=part).isel(zip=place)
            base = clean.sel(partition=part).isel(zip=0)
            gain = "" if place == 0 else f", {format_points(own, base)}"
            cells.append(f"{format_mean_std(own.values)}{gain}")
        print_row(name, *cells, f"{float(uses.isel(zip=place).mean()) / rounds:,.0f}")


def compare_attacks(accuracy: xr.DataArray, labels: list[str], byzantine: int) -> None:
    """Print the accuracy under each attack of so many devices."""
    names = [str(name) for name in accuracy["attack"].values]
    for part in accuracy["partition"].values:
        print_head(
            f"Accuracy with {byzantine} attackers of 20, {title(part)}",
            "uplink",
            *(name.replace("_", " ") for name in names),
            "worst",
        )
        here = accuracy.sel(byzantine=byzantine, partition=part)
        for place, name in enumerate(labels):
            own = here.isel(zip=place).transpose("attack", "trial").values
            worst = own.mean(1).min()
            print_row(name, *(format_mean_std(one) for one in own), f"{worst:.3f}")


def draw(accuracy: xr.DataArray, labels: list[str], path: Path) -> None:
    """Draw the worst mean accuracy over the attacks by the share of attackers."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained", sharey=True)
    worst = accuracy.mean("trial").min("attack")
    for axis, part in zip(axes, accuracy["partition"].values, strict=True):
        for name, (colour, marker) in DRAWN.items():
            own = worst.sel(partition=part).isel(zip=labels.index(name))
            share = 100 * own["byzantine"] / 20
            axis.plot(share, own, label=name, marker=marker, color=colour)
        axis.set(title=title(part), xlabel="attackers (%)", xticks=[0, 10, 20, 30], ylim=(0, 0.9))
    axes[0].set_ylabel("accuracy, worst attack")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", nargs="?", type=Path, default=Path("results/robust"))
    parser.add_argument("--figure", type=Path, default=Path("robust.png"))
    args = parser.parse_args()
    result = count_diverged(otafl.open_results(args.result))
    accuracy = select_at_end(result, "test_accuracy")
    labels = [label(result, place) for place in range(result.sizes["zip"])]
    compare_costs(result, accuracy, labels)
    for byzantine in result["byzantine"].values[1:]:
        compare_attacks(accuracy, labels, int(byzantine))
    draw(accuracy, labels, args.figure)


if __name__ == "__main__":
    command(main)
