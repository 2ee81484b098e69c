"""Which adapter survives the air: accuracy after fine-tuning at equal channel uses and at equal
joules, each mode at the step that is best on validation data.

    for name in studies/adapters/adapters*.yaml; do otafl sweep $name; done
    python -m studies.adapters.analyse [results] [--figure adapters.png]
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import count_diverged, select_at_end
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    compute_gain,
    format_points,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

AXES = ("channel uses", "joules")
ROUNDS = 40
"""Rounds of mode both that spend the budgets."""
USES = ROUNDS * 677.0
"""Budget of channel uses: two reals each."""
GUESS = 0.2
"""Accuracy of a guess among five classes, for runs without the variable that chooses steps."""
BASE = "both"
ARMS = {
    "both": ("both", "#000000", "o"),
    "freeze_a": ("freeze_a", "#0072B2", "s"),
    "alternate": ("alternate", "#56B4E9", "v"),
    "square": ("square", "#D55E00", "D"),
    "tangent": ("tangent", "#009E73", "^"),
    "dense": ("dense product", "#999933", "h"),
    "head": ("head alone", "#7F7F7F", "P"),
    "fedavg": ("whole model", "#CC79A7", "X"),
}
"""Arms with their words, colours and markers."""
CONTROLS = {"residual": "residual", "stacking": "stacking (FLoRA)", "svd": "svd (FlexLoRA)"}
STEPS = ("adapters_steps", "adapters_steps_ends", "adapters_steps_more")
FINAL = ("adapters", "adapters_rest")
SNRS = (-30, -20, 0)


@dataclass(frozen=True, eq=False)
class Run:
    """The trials of an arm at an SNR and a step size.

    Parameters
    ----------
    arm : str
        Mode, aggregation, "head" or the algorithm.
    snr : float
        SNR, dB.
    step : float
        Step size of the devices.
    trials : Dataset
        Variables by trial and round.
    joules : DataArray
        Budget of joules of each trial.
    """

    arm: str
    snr: float
    step: float
    trials: xr.Dataset
    joules: xr.DataArray

    @functools.cache  # noqa: B019 (lives as long as the script)
    def read(self, name: str, axis: str) -> xr.DataArray:
        """Read a variable of each trial where the budget of an axis is spent."""
        spent, budget = self.measure(axis), self.get_budget(axis)
        return interpolate_at_cost(self.trials, name, spent, budget).reset_coords(drop=True)

    def get_budget(self, axis: str) -> xr.DataArray:
        """Return the budget of each trial."""
        return xr.DataArray(USES) if axis == "channel uses" else self.joules

    def measure(self, axis: str) -> xr.DataArray:
        """Return what each trial has spent, by round."""
        return self.trials["uplink_symbols"] if axis == "channel uses" else sum_joules(self.trials)

    def count_rounds(self, axis: str) -> float:
        """Count the rounds at the budget, as a mean over trials."""
        rounds = xr.zeros_like(self.measure(axis)) + self.trials["round"]
        ds = self.trials.assign(rounds=rounds.where(self.measure(axis).notnull()))
        spent, budget = self.measure(axis), self.get_budget(axis)
        return float(interpolate_at_cost(ds, "rounds", spent, budget, math.nan).mean())

    @property
    def num_diverged(self) -> int:
        """Number of trials that diverged."""
        return int(self.trials["diverged_round"].notnull().sum())


def read_label(label: str) -> tuple[str, float | None]:
    """Read arm and step size of the label of an algorithm."""
    name, _, keys = label.partition("(")
    given = dict(re.findall(r"(\w+)=([^,)]+)", keys))
    step = given.get("learning_rate", given.get("personal_learning_rate"))
    arm = name
    if name == "lora":
        arm = given.get("mode", given.get("aggregate", "head" if "targets" in given else "both"))
    return arm, None if step is None else float(step)


def sum_joules(ds: xr.Dataset) -> xr.DataArray:
    """Sum the joules of computing and radiating over the devices."""
    energy = ds["device_energy_j"].sel(cause=["compute", "transmit"]).sum("cause", skipna=False)
    return energy.sum("device", skipna=False) if "device" in energy.dims else energy


def compute_joules(results: Path, name: str) -> xr.DataArray:
    """Compute the joules of each trial in so many rounds of mode both at 0 dB."""
    ds = open_result(results, name)
    arms = [read_label(str(label)) for label in ds["algorithm"].values]
    at = [
        i
        for i, (arm, snr) in enumerate(zip(arms, ds["snr_db"].values, strict=True))
        if arm == (BASE, 0.3) and snr == 0
    ]
    one = ds.isel(zip=at[0])
    spent, rounds = sum_joules(one), one["round"] + xr.zeros_like(sum_joules(one))
    rounds = rounds.where(spent.notnull())
    here = one.assign(spent=spent)
    return interpolate_at_cost(here, "spent", rounds, xr.DataArray(float(ROUNDS))).reset_coords(
        drop=True
    )


def list_runs(results: Path, budget: str, *names: str) -> Iterator[Run]:
    """List the runs of several sweeps; the sweep `budget` has the joules of the same trials."""
    every = compute_joules(results, budget)
    for name in names:
        ds = open_result(results, name)
        snrs = ds["snr_db"].values if "snr_db" in ds.coords else np.zeros(ds.sizes["zip"])
        for at, label in enumerate(ds["algorithm"].values):
            arm, step = read_label(str(label))
            own = ds.isel(zip=at)
            joules = every.isel(trial=slice(ds.sizes["trial"]))
            if step is not None:
                yield Run(arm, float(np.broadcast_to(snrs, ds.sizes["zip"])[at]), step, own, joules)
                continue
            for rate in ds["learning_rate"].values:
                yield Run(arm, 0.0, float(rate), own.sel(learning_rate=rate), joules)


@dataclass(frozen=True)
class Choice:
    """The step of an arm at an SNR with the best mean on validation data.

    Parameters
    ----------
    step : float
        Step size.
    is_end : bool
        Whether it is an end of the steps that ran.
    """

    step: float
    is_end: bool


def choose_steps(
    runs: list[Run], axis: str, name: str = "validation_accuracy"
) -> dict[tuple[str, float], Choice]:
    """Choose the step of each arm and SNR."""
    tried: dict[tuple[str, float], dict[float, float]] = {}
    for run in runs:
        value = run.read(name, axis) if name in run.trials else xr.DataArray([GUESS], dims="trial")
        tried.setdefault((run.arm, run.snr), {})[run.step] = float(value.mean())
    return {
        key: Choice(best := max(own, key=own.__getitem__), best in (min(own), max(own)))
        for key, own in tried.items()
    }


Found = dict[tuple[str, float], Run]


def select_runs(runs: list[Run], choices: Mapping[tuple[str, float], Choice]) -> Found:
    """Select the runs at the chosen steps."""
    by_step = {(run.arm, run.snr, run.step): run for run in runs}
    return {
        (arm, snr): by_step[arm, snr, one.step]
        for (arm, snr), one in choices.items()
        if (arm, snr, one.step) in by_step
    }


def format_accuracy(run: Run | None, axis: str, name: str = "test_accuracy") -> str:
    """Write the accuracy at a budget, mean and deviation over trials."""
    return "-" if run is None else format_mean_std(run.read(name, axis).values)


def print_vision(found: dict[str, Found], choices: dict[str, dict]) -> None:
    """Print accuracies, differences, rounds and steps of the modes that a sum carries."""
    heads = [f"{snr} dB" for snr in SNRS]
    for axis in AXES:
        for base in (BASE, "tangent"):
            is_first = base == BASE
            said = "; the devices' step" * is_first
            print_head(f"Points against {base} at equal {axis}{said}", "sent", *heads)
            for arm in ARMS:
                cells = []
                for snr in SNRS:
                    key = arm, snr
                    if arm == base:
                        cell = f"accuracy {format_accuracy(found[axis].get(key), axis)}"
                    else:
                        cell = format_gain(found[axis], key, (base, snr), axis)
                    step = f"; {format_step(choices[axis].get(key))}" * is_first
                    cells.append(f"{cell}{step}")
                print_row(ARMS[arm][0], *cells)
    print_head("Rounds at 0 dB", "sent", "coordinates", *(f"equal {axis}" for axis in AXES))
    for arm, (word, *_) in ARMS.items():
        runs = [found[axis].get((arm, 0.0)) for axis in AXES]
        rounds = [run.count_rounds(axis) for run, axis in zip(runs, AXES, strict=True) if run]
        uses = runs[0].measure("channel uses").isel(trial=0).dropna("round")
        size = 2.0 * float(uses[-1]) / float(uses["round"][-1])
        print_row(word, f"{size:,.0f}", *(f"{one:.1f}" for one in rounds))


def format_step(choice: Choice | None) -> str:
    return "-" if choice is None else f"{choice.step:g}{' (end)' if choice.is_end else ''}"


def format_gain(found: Found, own: tuple[str, float], base: tuple[str, float], axis: str) -> str:
    """Write the points of a run against another, with the paired interval."""
    if own not in found or base not in found:
        return "-"
    return format_points(*(found[key].read("test_accuracy", axis) for key in (own, base)))


def print_controls(results: Path, found: dict[str, Found]) -> None:
    """Print the modes that need each update, at 0 dB."""
    runs = list(list_runs(results, FINAL[0], "adapters_controls"))
    tuned = choose_steps(list(list_runs(results, STEPS[0], "adapters_controls_steps")), "joules")
    print_head(
        "Modes that need each update, over a digital uplink at 0 dB",
        *("mode", "step", "rounds at equal joules", "accuracy", "points against both"),
        *("channel uses of a round", "accuracy after 40 rounds"),
    )
    for run in runs:
        base = found["joules"][BASE, 0.0].read("test_accuracy", "joules")
        own = run.read("test_accuracy", "joules")
        uses = run.measure("channel uses").sel(round=40).mean() / 40
        ends = count_diverged(run.trials, to_last_round=True)["test_accuracy"].sel(round=40)
        print_row(
            *(CONTROLS[run.arm], format_step(tuned[run.arm, 0.0])),
            f"{run.count_rounds('joules'):.1f}",
            *(format_mean_std(own.values), format_points(own, base)),
            *(f"{float(uses):,.0f}", format_mean_std(ends.values)),
        )


def print_personal(results: Path) -> None:
    """Print the personal models, tested on the classes of each device."""
    test, validation = (f"personal_own_{one}_accuracy" for one in ("test", "validation"))
    tuning = list(list_runs(results, STEPS[0], "adapters_personal_steps", "adapters_personal_more"))
    runs = list(list_runs(results, FINAL[0], "adapters_personal"))
    heads = ("model", "step", "accuracy", "points against training alone")
    for axis in AXES:
        choices = choose_steps(tuning, axis, validation)
        found = select_runs(runs, choices)
        alone = found["local_only", 0.0].read(test, axis)
        print_head(f"Personal models at equal {axis}", *heads)
        for (arm, snr), run in found.items():
            own, step = run.read(test, axis), format_step(choices[arm, snr])
            word = "training alone" if arm == "local_only" else f"share_a, {snr:g} dB"
            gain = "-" if arm == "local_only" else format_points(own, alone)
            print_row(word, step, format_mean_std(own.values), gain)


TEXT = ("both", "freeze_a", "alternate", "square", "tangent", "head", "fedavg", "share_a")
"""Arms of the text."""
TEXT_SNRS = (-20, 0)
CHARACTERS = 28
Bits = tuple[xr.DataArray, xr.DataArray]  # of each trial, on validation and on test text


def read_bits(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Read bits per character at the end, of the personal models where there is no global one."""
    loss = select_at_end(ds, f"own_{name}_loss")
    if (personal := f"personal_own_{name}_loss") in ds:
        loss = loss.fillna(select_at_end(ds, personal))
    bits = loss / math.log(2)
    return bits.where(ds["diverged_round"].isnull(), math.log2(CHARACTERS)).reset_coords(drop=True)


def read_text(results: Path) -> dict[tuple[str, float], dict[float, Bits]]:
    """Read the bits of each arm, SNR and step."""
    found: dict[tuple[str, float], dict[float, Bits]] = {}
    for name in ("adapters_text", "adapters_text_ends"):
        ds = open_result(results, name)
        ds = ds if "snr_db" in ds.dims else ds.expand_dims(snr_db=[0])
        arms = [read_label(str(label))[0] for label in ds["algorithm"].values]
        bits = [read_bits(ds, one) for one in ("validation", "test")]
        for (i, arm), snr, rate in itertools.product(
            enumerate(arms), ds["snr_db"].values, ds["learning_rate"].values
        ):
            own = [one.isel(zip=i).sel(snr_db=snr, learning_rate=rate) for one in bits]
            own = [one.reset_coords(drop=True) for one in own]
            found.setdefault((arm, float(snr)), {})[float(rate)] = own[0], own[1]
    return found


def print_text(results: Path) -> None:
    """Print bits per character of the text, each arm at its best step on validation text."""
    tried = read_text(results)
    ds = open_result(results, "adapters_text")
    start = float((ds["own_test_loss"].sel(round=0) / math.log(2)).mean())
    best = {
        key: min(own, key=lambda step: float(own[step][0].mean())) for key, own in tried.items()
    }
    heads = [f"{snr} dB{more}" for snr in TEXT_SNRS for more in ("", ", against both")]
    print_head("Text: bits per character at equal channel uses", "sent", *heads, "steps")
    print_row("nothing, the start", *(f"{start:.3f}", "-") * len(TEXT_SNRS), "-")
    for arm in TEXT:
        row, steps = [], []
        for snr in map(float, TEXT_SNRS):
            bits = tried[arm, snr][best[arm, snr]][1]
            mean, low, high = compute_gain(bits, tried[BASE, snr][best[BASE, snr]][1])
            gain = "-" if arm == BASE else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
            row += [f"{float(bits.mean()):.3f}", gain]
            ends = min(tried[arm, snr]), max(tried[arm, snr])
            steps.append(format_step(Choice(best[arm, snr], best[arm, snr] in ends)))
        print_row(ARMS[arm][0] if arm in ARMS else arm, *row, ", ".join(steps))


def draw(found: dict[str, Found], path: Path) -> None:
    """Draw the points above mode both, with paired intervals, by SNR."""
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    for axis, panel in zip(AXES, axes, strict=True):
        base = {snr: found[axis][BASE, snr].read("test_accuracy", axis) for snr in SNRS}
        names = [one for one in ARMS if one != BASE]
        for i, arm in enumerate(names):
            word, colour, marker = ARMS[arm]
            there = [at for at, snr in enumerate(SNRS) if (arm, snr) in found[axis]]
            gains = [
                100
                * compute_gain(
                    found[axis][arm, SNRS[at]].read("test_accuracy", axis), base[SNRS[at]]
                )
                for at in there
            ]
            mean, low, high = np.array(gains).T
            x = np.array(there) + 0.09 * (i - 3)
            error = (mean - low, high - mean)
            style = {"color": colour, "marker": marker, "label": word, "capsize": 2}
            panel.errorbar(x, mean, error, elinewidth=1, linewidth=0, **style)
        ticks = [f"{snr} dB\n(both: {float(base[snr].mean()):.2f})" for snr in SNRS]
        panel.set_xticks(range(len(SNRS)), ticks)
        panel.axhline(0, color="0.3", lw=1)
        panel.set(title=f"equal {axis}")
        panel.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("points above mode both, 95 % interval")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__, "adapters.png")
    tuning, final = (list(list_runs(args.results, names[0], *names)) for names in (STEPS, FINAL))
    choices = {axis: choose_steps(tuning, axis) for axis in AXES}
    found = {axis: select_runs(final, choices[axis]) for axis in AXES}
    print_vision(found, choices)
    lost = {f"{run.arm} at {run.snr:g} dB": run.num_diverged for run in final if run.num_diverged}
    print(f"\ndiverged trials: {lost or 'none'}")
    draw(found, args.figure)
    print_controls(args.results, found)
    print_personal(args.results)
    print_text(args.results)


if __name__ == "__main__":
    command(main)
