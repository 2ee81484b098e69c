"""What fading costs a small character model: bits per character by SNR and uplink at equal channel
uses, each at the server's step that is best on validation data.

    for f in studies/fading_text/*.yaml; do otafl sweep $f; done
    python -m studies.fading_text.analyse [results] [--figure fading_text.png]

The text is read for the counts of characters (`otafl data get shakespeare`).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt

from otafl.engine.assembly import assemble
from otafl.results.end_values import count_diverged
from studies.common.looks import TYPE
from studies.common.tables import (
    command,
    compute_gain,
    expand_points,
    find_file,
    interpolate_at_cost,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)
from studies.natural_roles.analyse import predict_by_counts

UPLINKS = (
    ("sum in phase, least error", "#0072B2", "o"),
    ("sum in phase, equal power", "#56B4E9", "s"),
    ("votes without phase", "#D55E00", "v"),
    ("sum without phase", "#E69F00", "^"),
    ("packets, top 1 %", "#000000", "D"),
    ("packets, top 0.3 %", "#7F7F7F", "P"),
    ("no channel", "#009E73", "_"),
)
"""Uplinks in the scenario's order, with colour and marker."""
BASE = len(UPLINKS) - 1
BUDGET = 30 * 1388
"""Channel uses at which the uplinks are compared."""
LEAST = -30
"""SNR of `fading_text_ends`, dB."""
GUESS = math.log2(28)
"""Bits per character of the uniform guess, which a trial that diverged counts as."""


def open_steps(results: Path) -> xr.Dataset:
    """Open both sweeps as one: losses in bits where the budget is spent, NaN where no step ran."""
    ends = open_result(results, "fading_text_ends").expand_dims(snr_db=[LEAST])
    return xr.concat(
        [read_at_budget(open_result(results, "fading_text")), read_at_budget(ends)],
        "server_learning_rate",
        join="outer",
        coords="minimal",
        compat="override",
    ).sortby("server_learning_rate")


def read_at_budget(ds: xr.Dataset) -> xr.Dataset:
    """Read losses where the budget is spent, or at the end of the run; and the share spent."""
    spent = ds["uplink_symbols"]
    budget = xr.where(ds["zip"] == BASE, np.inf, float(BUDGET))
    found = xr.Dataset({"share": spent.max("round") / BUDGET})
    for name, variable in (("test", "own_test_loss"), ("validation", "own_validation_loss")):
        bits = ds.assign({variable: ds[variable] / math.log(2)})
        found[name] = interpolate_at_cost(bits, variable, spent, budget, GUESS)
    found["diverged"] = ds["diverged_round"].notnull().astype(float)
    return found.drop_vars(set(found.coords) - set(found.dims))


def select_best(ds: xr.Dataset) -> xr.Dataset:
    """Select the best steps on validation data, the mean over trials; `place` has their places."""
    place = ds["validation"].mean("trial", skipna=False).fillna(np.inf)
    place = place.argmin("server_learning_rate")
    best = ds.isel(server_learning_rate=place)
    return best.assign(place=place).transpose("zip", "snr_db", ...)


def read_fewer_rounds(results: Path) -> tuple[xr.DataArray, float]:
    """Read bits [trial] without a channel in 15 rounds, and the step, the best on validation."""
    ds = count_diverged(open_result(results, "fading_text_rounds"))
    step = "server_learning_rate"
    place = int(ds["own_validation_loss"].isel(round=-1).mean("trial").argmin(step))
    bits = ds["own_test_loss"].isel({"round": -1, step: place}, drop=True) / math.log(2)
    return bits, float(ds[step][place])


def measure_counts(ds: xr.Dataset) -> np.ndarray:
    """Measure bits per character of counts of two characters on each role's test text, [role, 2].

    They count in the training text of all roles, and in the role's own. Validation data are left
    out, as for the models.
    """
    point = expand_points(ds)[0]
    data, length = point.scenario.data.read(), point.scenario.model.context
    train = assemble([point], range(1)).samples.training_data
    places = [train.index[k, : int(train.count[k])].numpy() for k in range(train.num_devices)]
    x, y = data.x_train.astype(int), data.y_train
    rows = []
    for own, role in zip(places, np.unique(data.owner), strict=True):
        test = data.owner_test == role
        target = data.y_test[test].ravel()
        bits = []
        for part in (np.concatenate(places), own):
            p = predict_by_counts(
                (x[part], y[part]), data.x_test[test].astype(int), length, data.classes
            )
            bits.append(-np.log2(p[np.arange(len(target)), target]).mean())
        rows.append(bits)
    return np.array(rows)


def print_controls(results: Path, best: xr.DataArray) -> None:
    """Print bits of controls that need no channel, and those of uplinks above their control."""
    base = best[BASE, -1]
    fewer, step = read_fewer_rounds(results)
    path = find_file(results, "fading_text_counts.csv")
    if not path.exists():
        np.savetxt(path, measure_counts(open_result(results, "fading_text")), "%.6e")
    counts = np.loadtxt(path).mean(0)
    print_head("Controls without a channel", "control", "bits per character", "above 60 rounds")
    print_row("60 rounds", f"{float(base.mean()):.3f}", "-")
    print_row(f"15 rounds, step {step:g}", f"{float(fewer.mean()):.3f}", format_gain(fewer, base))
    for name, bits in zip(("all roles' counts", "role's own counts"), counts, strict=True):
        print_row(name, f"{bits:.3f}", f"{bits - float(base.mean()):+.3f}")
    print_row("uniform guess", f"{GUESS:.3f}", f"{GUESS - float(base.mean()):+.3f}")
    levels = [f"{level:g} dB" for level in best["snr_db"].values]
    print_head("Bits per character above no channel in 15 rounds", "uplink", *levels)
    for i in (2, 3):
        print_row(UPLINKS[i][0], *(format_gain(one, fewer) for one in best[i]))


def format_gain(values: xr.DataArray, base: xr.DataArray) -> str:
    """Write values - base: mean, ends of the paired interval over trials."""
    mean, low, high = compute_gain(values, base)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def print_tables(ds: xr.Dataset) -> None:
    """Print losses, differences, steps, and what was spent."""
    best = select_best(ds)
    bits, step = best["test"], best["server_learning_rate"]
    levels = [f"{level:g} dB" for level in ds["snr_db"].values]
    count = range(len(levels))
    print_head("Bits per character at equal channel uses", "uplink", *levels)
    for i, (name, *_) in enumerate(UPLINKS):
        print_row(name, *(f"{float(bits[i, j].mean()):.3f}" for j in count))
    for base in (BASE, 1, 0):
        print_head(f"Bits per character above {UPLINKS[base][0]}", "uplink", *levels)
        for i in (i for i in range(BASE) if i != base):
            print_row(UPLINKS[i][0], *(format_gain(bits[i, j], bits[base, j]) for j in count))
    print_head("Server's steps", "uplink", *levels)
    for i, (name, *_) in enumerate(UPLINKS):
        print_row(name, *(f"{float(step[i, j]):g}" + mark_end(ds, best, i, j) for j in count))
    print_head("Spent of the budget in the run", "uplink", *levels)
    for i, (name, *_) in enumerate(UPLINKS[:BASE]):
        print_row(name, *(f"{float(best['share'][i, j].mean()):.2f}" for j in count))
    print_head("Diverged trials at the chosen step, and at all steps", "uplink", *levels)
    lost = ds["diverged"].sum(["trial", "server_learning_rate"]).transpose("zip", "snr_db")
    for i, (name, *_) in enumerate(UPLINKS):
        own = best["diverged"][i].sum("trial")
        print_row(name, *(f"{int(own[j])}, {int(lost[i, j])}" for j in count))


def mark_end(ds: xr.Dataset, best: xr.Dataset, i: int, j: int) -> str:
    """Mark a step at an end of those that ran."""
    ran = ds["validation"].isel(zip=i, snr_db=j).notnull().any("trial")
    places = np.flatnonzero(ran.values)
    return " (end)" if int(best["place"][i, j]) in (places[0], places[-1]) else ""


def draw(ds: xr.Dataset, fewer: xr.DataArray, path: Path) -> None:
    """Draw bits above those without a channel, against the SNR."""
    bits = select_best(ds)["test"]
    plt.rcParams.update(TYPE)
    figure, axis = plt.subplots(figsize=(10, 5), layout="constrained")
    for i, (name, colour, marker) in enumerate(UPLINKS[:BASE]):
        own = [compute_gain(a, b) for a, b in zip(bits[i], bits[BASE], strict=True)]
        mean, low, high = np.array(own).T
        x = ds["snr_db"].values + 0.4 * (i - 2.5)
        error = (mean - low, high - mean)
        axis.errorbar(x, mean, error, color=colour, marker=marker, capsize=3, label=name)
    untrained = GUESS - float(bits[BASE].mean())
    axis.axhline(untrained, color="0.5", ls=":", lw=1, label="uniform guess")
    axis.axhline(0, color=UPLINKS[BASE][1], lw=1, label=f"{UPLINKS[BASE][0]}, 60 rounds")
    short = float(fewer.mean() - bits[BASE].mean())
    said = f"{UPLINKS[BASE][0]}, 15 rounds"
    axis.axhline(short, color=UPLINKS[BASE][1], ls="--", lw=1, label=said)
    axis.set(xlabel="SNR [dB]", ylabel="bits per character above no channel")
    axis.set_xticks(ds["snr_db"].values)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__, "fading_text.png")
    ds = open_steps(args.results)
    print_tables(ds)
    print_controls(args.results, select_best(ds)["test"])
    draw(ds, read_fewer_rounds(args.results)[0], args.figure)


if __name__ == "__main__":
    command(main)
