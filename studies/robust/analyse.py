"""Accuracy under attack by uplink and robust rule, and what each costs without attackers.

otafl sweep studies/robust/robust.yaml
otafl sweep studies/robust/robust_air.yaml
python -m studies.robust.analyse [results/robust] [--figure robust.png]

The result of the second scenario is next to that of the first. `robust_equal_uses.py` is for
equal channel uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xarray as xr
from matplotlib import pyplot as plt

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

WORDS = {
    "over_the_air": "sum",
    "fsk_majority_vote": "majority vote",
    "type_based": "type-based, median",
    "digital": "digital",
}
RULES = {"multi_krum": "Multi-Krum"}
"""Of rules with a proper name; the others have that of the scenario."""
TITLES = {"iid": "IID"}
"""Of a partition; the other has two classes a device."""
DRAWN = {
    "sum": ("#000000", "o"),
    "10 groups, geometric median": ("#0072B2", "s"),
    "10 groups, centred clipping": ("#CC79A7", "X"),
    "majority vote": ("#E69F00", "v"),
    "type-based, median": ("#009E73", "^"),
    "digital, geometric median": ("#56B4E9", "D"),
    "digital, Multi-Krum": ("#D55E00", "P"),
}
"""Uplinks of the figure, with colour and marker."""
TOLD = {*DRAWN, "digital", "10 groups, coordinate median"}
"""Uplinks of the tables."""
GUESS = 0.1
"""Accuracy of a guess among ten classes."""


def label(result: xr.Dataset, place: int) -> str:
    """Write uplink, groups and rule of an entry of the scenario's joint axis."""
    transport = str(result["transport"].values[place]).partition("(")[0]
    groups, rule = (str(result[name].values[place]) for name in ("groups", "rule"))
    text = WORDS[transport]
    if transport == "over_the_air" and groups != "1":
        text = f"{groups} groups"
    return text if rule == "mean" else f"{text}, {RULES.get(rule, rule.replace('_', ' '))}"


def title(partition: object) -> str:
    return TITLES.get(str(partition), "two classes a device")


def print_worst(accuracy: xr.DataArray, labels: list[str], part: str) -> None:
    """Print the lowest mean accuracy over the attacks by the number of attackers."""
    here = accuracy.sel(partition=part)
    numbers = [int(number) for number in here["byzantine"].values if number != 2]
    print_head(
        f"Equal rounds, worst of five attacks, {title(part)}",
        *("uplink", "no attackers"),
        *(f"{100 * number // 20} %" for number in numbers[1:]),
    )
    for place, name in enumerate(labels):
        if name not in TOLD:
            continue
        cells = []
        for number in numbers:
            own = here.sel(byzantine=number).isel(zip=place).transpose("attack", "trial").values
            cells.append(format_mean_std(own[own.mean(1).argmin()]))
        print_row(name, *cells)


def compare_air_attacks(result: xr.Dataset) -> None:
    """Print the accuracy under attacks of most devices on the power control by policy."""
    accuracy = select_at_end(result, "test_accuracy").isel(byzantine=-1)
    attacks = [str(name) for name in accuracy["attack"].values]
    cases = [(attack, place) for attack in attacks for place in (0, 1)]
    print_head(
        f"Attacks on the power control, {int(accuracy['byzantine'])} attackers of 20",
        "policy",
        *(f"`{attack}`, {('sum', '10 groups')[place]}" for attack, place in cases),
    )
    for power in accuracy["power"].values:
        own = accuracy.sel(power=power)
        values = [own.sel(attack=attack).isel(zip=place).values for attack, place in cases]
        print_row(f"`{power}`", *map(format_mean_std, values))


def find_companion(results: Path, name: str) -> xr.Dataset | None:
    """Find the result of another scenario next to the study's; None if it is missing."""
    try:
        return count_diverged(open_result(results, name))
    except otafl.UserError as error:  # it has not been run
        print(f"{name}: left out: {error}", file=sys.stderr)
        return None


def draw(accuracy: xr.DataArray, labels: list[str], path: Path) -> None:
    """Draw the worst mean accuracy over the attacks by the share of attackers."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained", sharey=True)
    mean = accuracy.mean("trial")
    worst, which = mean.min("attack"), mean.argmin("attack")
    spread = accuracy.std("trial", ddof=1).isel(attack=which)
    for axis, part in zip(axes, accuracy["partition"].values, strict=True):
        for name, (colour, marker) in DRAWN.items():
            own, error = (
                one.sel(partition=part).isel(zip=labels.index(name)) for one in (worst, spread)
            )
            share = 100 * own["byzantine"] / 20
            axis.errorbar(
                share, own, error, label=name, marker=marker, color=colour, capsize=2, elinewidth=1
            )
        axis.axhline(GUESS, color="#808080", linewidth=0.8, linestyle="--", label="guess")
        axis.set(title=title(part), xlabel="attackers (%)", xticks=[0, 10, 20, 30], ylim=(0, 0.9))
    axes[0].set_ylabel("accuracy, worst attack, mean ± deviation")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)


def main() -> None:
    args = parse_study_arguments(__doc__, "robust.png")
    result = count_diverged(open_result(args.results, "robust"))
    accuracy = select_at_end(result, "test_accuracy")
    labels = [label(result, place) for place in range(result.sizes["zip"])]
    for part in map(str, accuracy["partition"].values):
        print_worst(accuracy, labels, part)
    if (air := find_companion(args.results, "robust_air")) is not None:
        compare_air_attacks(air)
    draw(accuracy, labels, args.figure)


if __name__ == "__main__":
    command(main)
