"""Accuracy under attack by uplink and robust rule, and what each costs without attackers.

otafl sweep studies/robust/robust.yaml
otafl sweep studies/robust/robust_air.yaml
otafl sweep studies/robust/robust_step_size.yaml
python -m studies.robust.analyse [results/robust] [--figure robust.png]

The results of the last two scenarios are next to that of the first. `robust_equal_uses.py` is for
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
    format_points,
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


def compare_costs(result: xr.Dataset, accuracy: xr.DataArray, labels: list[str]) -> None:
    """Print accuracy and channel uses without attackers."""
    rounds = int(result["round"].values[-1])
    clean = accuracy.sel(byzantine=0).isel(attack=0)
    uses = select_at_end(result, "uplink_symbols").sel(byzantine=0).isel(attack=0).mean("trial")
    error = select_at_end(result, "aggregation_nmse").sel(byzantine=0, partition="iid")
    error = error.isel(attack=0).mean("trial")
    print_head(
        "Without attackers: points of test accuracy against the sum, paired",
        *(
            "uplink",
            *map(title, accuracy["partition"].values),
            "channel uses a round",
            "squared error, IID",
        ),
    )
    for place, name in enumerate(labels):
        cells = []
        for part in accuracy["partition"].values:
            own = clean.sel(partition=part).isel(zip=place)
            base = clean.sel(partition=part).isel(zip=0)
            gain = "" if place == 0 else f", {format_points(own, base)}"
            cells.append(f"{format_mean_std(own.values)}{gain}")
        spent = float(uses.isel(zip=place).mean()) / rounds
        print_row(name, *cells, f"{spent:,.0f}", f"{float(error.isel(zip=place)):.3f}")


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
            worst = own[own.mean(1).argmin()]
            print_row(name, *map(format_mean_std, own), format_mean_std(worst))


def compare_gains(accuracy: xr.DataArray, labels: list[str], byzantine: int) -> None:
    """Print what each rule gains over the sum under each attack, for heterogeneous data."""
    part = accuracy["partition"].values[-1]
    here = accuracy.sel(byzantine=byzantine, partition=part)
    names = [str(name) for name in here["attack"].values]
    print_head(
        f"Points against the sum with {byzantine} attackers of 20, {title(part)}, paired",
        *("uplink", *(name.replace("_", " ") for name in names)),
    )
    for place, name in enumerate(labels[1:], 1):
        own, base = here.isel(zip=place), here.isel(zip=0)
        print_row(name, *(format_points(own.sel(attack=a), base.sel(attack=a)) for a in names))


def compare_air_attacks(result: xr.Dataset) -> None:
    """Print the accuracy under attacks on the power control by policy."""
    accuracy = select_at_end(result, "test_accuracy")
    attacks = [str(name) for name in accuracy["attack"].values]
    cases = [(attack, place) for attack in attacks for place in (0, 1)]
    for byzantine in accuracy["byzantine"].values:
        print_head(
            f"Attacks on the power control, {byzantine} attackers of 20",
            "policy",
            *(f"`{attack}`, {('sum', '10 groups')[place]}" for attack, place in cases),
        )
        for power in accuracy["power"].values:
            own = accuracy.sel(byzantine=byzantine, power=power)
            print_row(
                f"`{power}`",
                *(format_mean_std(own.sel(attack=a).isel(zip=place).values) for a, place in cases),
            )


def compare_step_sizes(result: xr.Dataset) -> None:
    """Print the accuracy of one sum at full power by the step size."""
    accuracy = select_at_end(result, "test_accuracy")
    print_head("One sum at full power without attackers, IID", "step size", "accuracy")
    for rate in accuracy["learning_rate"].values:
        print_row(f"{rate:g}", format_mean_std(accuracy.sel(learning_rate=rate).values))


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
    compare_costs(result, accuracy, labels)
    for byzantine in result["byzantine"].values[1:]:
        compare_attacks(accuracy, labels, int(byzantine))
    compare_gains(accuracy, labels, 4)
    if (air := find_companion(args.results, "robust_air")) is not None:
        compare_air_attacks(air)
    if (steps := find_companion(args.results, "robust_step_size")) is not None:
        compare_step_sizes(steps)
    draw(accuracy, labels, args.figure)


if __name__ == "__main__":
    command(main)
