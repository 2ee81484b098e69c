"""Airtime and radiated joules until 80 % test accuracy, analogue and digital, at the peak budget.
Settings are chosen by the cost to the target on validation data, for each uplink and SNR alike.

    for s in "" _votes _more_votes _truncation _sparse _thresholds _fades; do
      otafl sweep studies/analog_vs_digital/analog_vs_digital$s.yaml
    done
    python -m studies.analog_vs_digital.analyse [results] [--figure analog_vs_digital.png]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from scipy import stats

import otafl
from studies.analog_vs_digital.uplink_costs import (
    AIRTIME,
    FADES_BITS,
    FULL_POWER,
    GOALS,
    OFDMA,
    SNRS,
    TARGET,
    TDMA,
    Found,
    Goal,
    find_fades,
    list_analogue,
    list_digital,
    lower_power,
    open_study,
    select_winner,
)
from studies.common.looks import TYPE
from studies.common.tables import command, parse_study_arguments, print_head, print_row


def print_costs(found: Found) -> None:
    for goal, kinds in found.items():
        if goal == FULL_POWER:  # its ratios are printed
            continue
        head = [f"{snr:g} dB" for snr in SNRS]
        title = f"{goal.title} to 80 %: median of ten trials (lowest to highest)"
        print_head(title, "uplink", *head)
        for one in kinds["analogue"]:  # digital ones are the best of these times the ratios
            print_row(one.name, *map(format_cell, one.select_best()[0]))
        title = f"{goal.label}: chosen on validation images, * is an end of the grid"
        print_head(title, "analogue uplink", *head)
        for one in kinds["analogue"]:
            _, rounds, said = one.select_best()
            cells = (
                f"{mark_ends(s, one.settings)}; {format_rounds(r)}"
                for s, r in zip(said, rounds, strict=True)
            )
            print_row(one.name, *cells)


def mark_ends(chosen: str, settings: list[str]) -> str:
    """Mark with a star the values of a setting that are the least or the most of the grid."""
    grids: dict[str, set[float]] = {}
    for said in settings:
        for part in said.split(", "):
            key, _, value = part.rpartition(" ")
            grids.setdefault(key, set()).add(float(value))
    out = []
    for part in chosen.split(", "):
        key, _, value = part.rpartition(" ")
        ends = min(grids[key]), max(grids[key])
        # full power is a limit; the page says that the least power is an end
        is_end = len(grids[key]) > 1 and float(value) in ends and key != "power"
        out.append(part + "*" * is_end)
    return ", ".join(out)


def format_rounds(rounds: np.ndarray) -> str:
    return "not reached" if np.isnan(rounds).any() else f"{np.median(rounds):g} rounds"


def format_cell(values: np.ndarray) -> str:
    short = np.isnan(values).sum()
    if short:
        return f"not reached in {short} of {len(values)}"
    return f"{np.median(values):.3g} [{values.min():.3g}, {values.max():.3g}]"


def compute_ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean of a ratio over trials, and the ends of its 95 % interval."""
    log = np.log(above / below)
    half = stats.t.ppf(0.975, len(log) - 1) * log.std(ddof=1) / np.sqrt(len(log))
    mean, low, high = np.exp([log.mean(), log.mean() - half, log.mean() + half])
    return float(mean), float(low), float(high)


def print_ratios(found: Found) -> None:
    head = [f"{snr:g} dB" for snr in SNRS]
    print_head(
        "Digital over the best analogue uplink (geometric mean, 95 % interval)",
        "cost",
        "digital uplink",
        *head,
    )
    for goal, kinds in found.items():
        for one in kinds["digital"]:
            cells = []
            for snr in range(len(SNRS)):
                base = select_winner(kinds["analogue"], snr).select_best()[0][snr]
                mean, low, high = compute_ratio(one.select_best()[0][snr], base)
                cells.append(f"{mean:.3g} [{low:.3g}, {high:.3g}]")
            if len({*cells}) == 1:  # the best power is another at each SNR
                cells = [*cells[:1], *["the same"] * (len(SNRS) - 1)]
            print_row(goal.label, one.name, *cells)


def print_thresholds(results: Path, found: Found) -> None:
    """Print airtime by the threshold below which a device is silent.

    Three trials of another seed: rounds until 80 % of the validation images, times the mean cost of
    a round over 1,200 rounds of fading.
    """
    ds = open_study(results, "_thresholds")
    thresholds = [float(g) for g in ds["gain_threshold"].values]
    rounds = otafl.compute_cost_to_reach(ds, "validation_accuracy", TARGET)["round"]
    rounds = rounds.transpose("gain_threshold", "trial").values
    bits = float(count_packet_bits(open_study(results, "_sparse"), find_fades(results, OFDMA, 0.3)))
    prices = {
        access: np.stack([price_round(find_fades(results, access, g), bits) for g in thresholds])
        for access in (TDMA, OFDMA)
    }
    head = [f"{g:g}" for g in thresholds]
    print_head(
        "Rounds (lowest to highest) and airtime (s) by threshold: mean of three trials, * is least",
        *("access", "SNR", *head),
    )
    print_row("rounds", "", *map(format_spread, rounds))
    last = float(ds["round"][-1])
    for access, each in prices.items():
        by_snr = choose_prices(AIRTIME, each)
        for place, snr in enumerate(SNRS):
            values = by_snr[:, place, None] * rounds
            cells = ["-" if np.isnan(one).any() else f"{one.mean():.3g}" for one in values]
            for k, price in enumerate(by_snr[:, place]):
                cells[k] = cells[k] if cells[k] != "-" else f"over {last * price:.3g}"
            cells[int(np.nanargmin(values.mean(1)))] += "*"
            print_row(access.upper(), f"{snr:g} dB", *cells)
    print_head(
        "Digital at its best threshold over the best analogue uplink (unpaired, 95 % interval)",
        *("cost", "access", *(f"{snr:g} dB" for snr in SNRS)),
    )
    for goal, kinds in found.items():
        for access, each in prices.items():
            by_snr, cells = choose_prices(goal, each), []
            for place in range(len(SNRS)):
                values = by_snr[:, place, None] * rounds
                best = values[int(np.nanargmin(values.mean(1)))]
                base = select_winner(kinds["analogue"], place).select_best()[0][place]
                mean, low, high = compare_unpaired(best, base)
                cells.append(f"{mean:.3g} [{low:.3g}, {high:.3g}]")
            print_row(goal.label, access.upper(), *cells)


def choose_prices(goal: Goal, prices: np.ndarray) -> np.ndarray:
    """Return a round's cost [threshold, SNR] for a goal, of [threshold, cost, SNR]."""
    full = prices[:, goal.cost]
    powers = range(len(SNRS) if goal.chooses_power else 1)
    return np.min([lower_power(full, steps) for steps in powers], axis=0)


def format_spread(values: np.ndarray) -> str:
    """Write the mean (lowest to highest) of trials, or a dash if one did not get there."""
    if np.isnan(values).any():
        return "-"
    return f"{values.mean():.3g} [{values.min():.3g}, {values.max():.3g}]"


def count_packet_bits(learned: xr.Dataset, fades: xr.Dataset) -> float:
    """Return the bits of a packet, from those of all packets of five rounds."""
    sent, bits = (
        d["uplink_bits"].sel(round=5).isel(trial=0) for d in (fades.isel(snr_db=0), learned)
    )
    return FADES_BITS * float(bits) / float(sent)


def price_round(fades: xr.Dataset, bits: float) -> np.ndarray:
    """Return mean seconds and joules of a round by SNR, [cost, SNR]."""
    last = fades.isel(round=-1)
    factor, rounds = bits / FADES_BITS, int(fades["round"][-1])
    seconds = (last["uplink_symbols"] * factor + last["side_symbols"]) / 1e6
    costs = (seconds, last["tx_energy_j"] * factor)
    return np.stack([c.mean("trial").sel(snr_db=list(SNRS)).values / rounds for c in costs])


def compare_unpaired(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of geometric means, and the ends of Welch's 95 % interval."""
    logs = np.log(above), np.log(below)
    found = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    mean = float(np.exp(logs[0].mean() - logs[1].mean()))
    return mean, float(np.exp(found.low)), float(np.exp(found.high))


def draw(found: Found, path: Path) -> None:
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 4.6), layout="constrained")
    shown = {
        "digital, all coordinates": (0, "#7F7F7F", "o", "--"),
        "digital, sparse, ten devices": (2, "#E69F00", "s", "--"),
        "the same, silent below a gain of 0.3, 4 bits": (-2, "#D55E00", "D", "--"),
        "the same, OFDMA": (-1, "#882255", "v", "-"),
    }
    panels = ((AIRTIME, "airtime (s), full power"), (FULL_POWER, "radiated (J), full power"))
    for axis, (goal, label) in zip(axes, panels, strict=True):
        analogue, digital = found[goal].values()
        best = [select_winner(analogue, i).select_best()[0][i] for i in range(len(SNRS))]
        plot_range(axis, np.stack(best), -0.6, "best analogue uplink", "#0072B2", "^", "-")
        for turn, (name, (place, colour, marker, line)) in enumerate(shown.items()):
            values = digital[place].select_best()[0]
            plot_range(axis, values, 0.6 * turn, name, colour, marker, line)
        axis.set(xlabel="SNR at full power (dB)", ylabel=label)
        axis.set(yscale="log", xticks=SNRS, title="median and range of trials")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=100)
    print(f"\nfigure: {path}")


def plot_range(
    axis: plt.Axes, values: np.ndarray, shift: float, name: str, colour: str, marker: str, line: str
) -> None:
    """Draw median, lowest and highest of the trials [SNR, trial]."""
    middle = np.median(values, 1)
    ends = np.abs(np.stack([values.min(1), values.max(1)]) - middle)
    style = {"color": colour, "marker": marker, "ls": line, "ms": 6, "capsize": 3, "mfc": "none"}
    axis.errorbar(np.array(SNRS) + shift, middle, ends, label=name, **style)


def main() -> None:
    args = parse_study_arguments(__doc__, "analog_vs_digital.png")
    measured = {
        "analogue": list(list_analogue(args.results)),
        "digital": list(list_digital(args.results)),
    }
    found = {
        goal: {kind: [one.pursue(goal) for one in each] for kind, each in measured.items()}
        for goal in GOALS
    }
    print_ratios(found)
    print_costs(found)
    print_thresholds(args.results, found)
    draw(found, args.figure)


if __name__ == "__main__":
    command(main)
