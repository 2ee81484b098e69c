"""Airtime and radiated joules until 80 % test accuracy, analogue and digital, at the peak budget.
Settings are chosen by the cost to the target on validation data, for each uplink and SNR alike.

    for s in "" _votes _more_votes _truncation _sparse _thresholds _fades; do
      otafl sweep scenarios/studies/analog_vs_digital$s.yaml
    done
    python scripts/analog_vs_digital.py [results] [--figure analog_vs_digital.png]

What digital devices learn does not depend on SNR and access: with perfect channel knowledge no
packet is lost. `analog_vs_digital_fades` has the time and energy of packets of 650 bits in the same
fades, and a packet of b bits takes b / 650 of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from looks import TYPE
from matplotlib import pyplot as plt
from scipy import stats
from tables import open_result, parse_study_arguments, print_head, print_row

import otafl

STUDY = "analog_vs_digital"
TARGET, CHOOSE = 0.8, 0.79
"""A trial may stop at the target on test samples before it is there on validation samples."""
SNRS = (-20, 0, 20)
COSTS = {"airtime_s": "uplink airtime (s)", "tx_energy_j": "radiated (J)"}
FADES_BITS = 650
"""Bits of a packet of `analog_vs_digital_fades`."""
TDMA, OFDMA = "tdma", "ofdma"
ANALOGUE: dict[str, Callable[[str, str, str], bool]] = {
    "equal power (`gbma`)": lambda t, p, c: (p, c) == ("gbma", "identity"),
    "truncated inversion (`tci`)": lambda t, p, c: p.startswith("tci(") and "peak" in p,
    "least error (`cao_static`)": lambda t, p, c: p == "cao_static",
    "one bit (`obda`)": lambda t, p, c: p == "gbma" and c.startswith("obda"),
}
"""Uplink -> whether a point's transport, power and codec are of it; two real values a symbol."""

GRIDS = {
    "_votes": ("one bit (`obda`)", ("learning_rate", "step")),
    "_more_votes": ("one bit (`obda`)", ("learning_rate", "step")),
    "_truncation": ("truncated inversion (`tci`)", ("threshold",)),
}
"""Part of the study -> the analogue uplink whose grid it widens, and the swept settings."""


class Uplink(NamedTuple):
    """Costs [cost, setting, SNR, trial] of an uplink until validation and test are there."""

    name: str
    choose: np.ndarray
    cost: np.ndarray
    rounds: np.ndarray
    """[setting, SNR, trial] rounds until the test target"""
    settings: list[str]

    def select_best(self, cost: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return cost and rounds [SNR, trial] at the setting that is best on validation data."""
        late = self.choose[cost]
        late = np.where(np.isnan(late), 10 * np.nanmax(late, initial=1e-9), late)
        best = late.mean(-1).argmin(0)
        at = best, np.arange(len(SNRS))
        return self.cost[cost][at], self.rounds[at], [self.settings[i] for i in best]

    def score(self, cost: int = 0) -> np.ndarray:
        """Return the validation cost [SNR] of the best setting, infinite if a trial misses it."""
        return np.where(np.isnan(self.choose[cost]), np.inf, self.choose[cost]).mean(-1).min(0)


def open_study(results: Path, part: str = "") -> xr.Dataset:
    return open_result(results, STUDY + part)


def find_costs(ds: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return validation and test costs [cost, point, SNR, trial], rounds [point, SNR, trial]."""
    found = [
        otafl.compute_cost_to_reach(ds, name, goal)
        for name, goal in (("validation_accuracy", CHOOSE), ("test_accuracy", TARGET))
    ]
    order = ("zip", "snr_db", "trial")
    choose, cost = (np.stack([f[c].transpose(*order).values for c in COSTS]) for f in found)
    return choose, cost, found[1]["round"].transpose(*order).values


def list_labels(ds: xr.Dataset) -> list[tuple[str, str, str]]:
    labels = (
        np.broadcast_to(ds[n].values, ds.sizes["zip"]) for n in ("transport", "power", "codec")
    )
    return [(str(t), str(p), str(c)) for t, p, c in zip(*labels, strict=True)]


def list_analogue(results: Path) -> Iterator[Uplink]:
    """Yield the analogue uplinks with two real values a symbol, each with all of its settings."""
    tried: dict[str, list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]] = {
        n: [] for n in ANALOGUE
    }
    first = open_study(results)
    for rate in map(float, first["learning_rate"].values):
        ds = first.sel(learning_rate=rate)
        choose, cost, rounds = find_costs(ds)
        for place, label in enumerate(list_labels(ds)):
            if "quadrature=True" not in label[0]:
                continue
            for name, is_member in ANALOGUE.items():
                if is_member(*label):
                    said = format_setting(f"{label[1]} {label[2]}", rate)
                    tried[name].append((said, choose[:, place], cost[:, place], rounds[place]))
    for part, (name, axes) in GRIDS.items():
        ds = open_study(results, part).stack(zip=axes)
        choose, cost, rounds = find_costs(ds)
        for place, values in enumerate(ds.indexes["zip"]):
            point = {"learning_rate": 0.2} | dict(zip(axes, map(float, values), strict=True))
            rate = point.pop("learning_rate")
            said = ", ".join([f"step size {rate:g}", *(f"{k} {v:g}" for k, v in point.items())])
            tried[name].append((said, choose[:, place], cost[:, place], rounds[place]))
    for name, found in tried.items():
        said, *arrays = zip(*found, strict=True)
        yield Uplink(name, *(np.stack(a, -3) for a in arrays), list(said))


def format_setting(label: str, rate: float) -> str:
    keys = re.findall(r"\b(step|keep|threshold)=([\d.e-]+)", label)
    if label.startswith("tci(") and not any(key == "threshold" for key, _ in keys):
        keys.append(("threshold", "0.1"))
    return ", ".join([f"step size {rate:g}", *(f"{k} {float(v):g}" for k, v in keys)])


def find_fades(results: Path, access: str, threshold: float) -> xr.Dataset:
    """Return the costs of packets of 650 bits by SNR, trial and round."""
    ds = open_study(results, "_fades")
    for place, label in enumerate(map(str, ds["transport"].values)):
        said = re.search(r"gain_threshold=([\d.]+)", label)
        is_there = float(said.group(1)) == threshold if said else threshold == 0
        if is_there and (f"access={access}" in label or (access == TDMA and "access" not in label)):
            return ds.isel(zip=place)
    raise LookupError(f"no fades of {access} with a threshold of {threshold}")


def compute_prices(learned: xr.Dataset, fades: xr.Dataset) -> tuple[np.ndarray, ...]:
    """Return validation and test costs [cost, SNR, trial] and rounds [trial] of packets.

    Parameters
    ----------
    learned : accuracies and bits of one point, [trial, round].
    fades : costs of packets of 650 bits, [snr_db, trial, round], in the same fades.
    """
    learned = learned.drop_vars([c for c in learned.coords if c not in {"trial", "round"}])
    found = []
    for name, goal in (("validation_accuracy", CHOOSE), ("test_accuracy", TARGET)):
        first = otafl.compute_cost_to_reach(learned, name, goal)["round"]
        at = first.fillna(0).astype(int)
        some = fades.sel(trial=learned["trial"].values)
        sent, bits = (d["uplink_bits"].sel(round=at) for d in (some.isel(snr_db=0), learned))
        factor = (bits / sent).where(first.notnull())  # of the bits of a packet
        seconds = some["uplink_symbols"].sel(round=at) * factor + some["side_symbols"].sel(round=at)
        joules = some["tx_energy_j"].sel(round=at) * factor
        costs = (seconds / 1e6, joules)
        found.append(np.stack([c.transpose("snr_db", "trial").values for c in costs]))
    return found[0], found[1], first.values


def list_digital(results: Path) -> Iterator[Uplink]:
    """Yield the digital uplinks, from whole updates to the best."""
    first = open_study(results)
    old = list_labels(first)
    for name, codec in (
        ("all coordinates, 32 bits", "identity"),
        ("all coordinates, 4 bits", "qsgd"),
        ("largest 0.3 %, 32 bits", "topk(keep=0.003)"),
    ):
        place = next(i for i, (t, _, c) in enumerate(old) if t == "digital" and c.startswith(codec))
        parts = [
            find_costs(first.sel(learning_rate=r).isel(zip=[place])) for r in first["learning_rate"]
        ]
        arrays = (np.concatenate(a, -3) for a in zip(*parts, strict=True))
        rates = [f"step size {float(r):g}" for r in first["learning_rate"]]
        yield Uplink(f"{name}, TDMA", *arrays, rates)
    label = "digital(gain_threshold=0.3)"
    place = next(i for i, (t, _, c) in enumerate(old) if t == label and c.startswith("topk"))
    plain = first.isel(zip=place, snr_db=0).sel(learning_rate=0.2)
    yield from price_all(
        "largest 0.3 %, 32 bits, silent in deep fades", results, [(0.3, plain)], (TDMA,)
    )
    short = "largest 0.3 %, 4 bits, enumerative positions, silent in deep fades"
    yield from price_all(short, results, [(0.3, open_study(results, "_sparse"))])


def price_all(
    name: str,
    results: Path,
    points: list[tuple[float, xr.Dataset]],
    accesses: tuple[str, ...] = (TDMA, OFDMA),
) -> Iterator[Uplink]:
    for access in accesses:
        priced = [compute_prices(one, find_fades(results, access, g)) for g, one in points]
        choose, cost, rounds = zip(*priced, strict=True)
        each = np.stack([np.broadcast_to(r, (len(SNRS), len(r))) for r in rounds])
        said = [f"threshold {g:g}" for g, _ in points]
        yield Uplink(
            f"{name}, {access.upper()}", np.stack(choose, 1), np.stack(cost, 1), each, said
        )


def print_costs(found: dict[str, list[Uplink]]) -> None:
    for cost, (label, about) in enumerate(zip(COSTS.values(), ("Airtime", "Joules"), strict=True)):
        head = [f"{snr:g} dB" for snr in SNRS]
        print_head(f"{about} to 80 %: median of ten trials (lowest to highest)", "uplink", *head)
        for kind, uplinks in found.items():
            for one in uplinks:
                print_row(f"{kind}: {one.name}", *map(format_cell, one.select_best(cost)[0]))
        print_head(
            f"{label}: chosen on validation images, * is an end of the grid", "uplink", *head
        )
        for kind, uplinks in found.items():
            for one in uplinks:
                _, rounds, said = one.select_best(cost)
                cells = (
                    f"{mark_ends(s, one.settings)}; {format_rounds(r)}"
                    for s, r in zip(said, rounds, strict=True)
                )
                print_row(f"{kind}: {one.name}", *cells)


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
        is_end = len(grids[key]) > 1 and float(value) in (min(grids[key]), max(grids[key]))
        out.append(part + "*" * is_end)
    return ", ".join(out)


def format_rounds(rounds: np.ndarray) -> str:
    return "not reached" if np.isnan(rounds).any() else f"{np.median(rounds):g} rounds"


def format_cell(values: np.ndarray) -> str:
    short = np.isnan(values).sum()
    if short:
        return f"not reached in {short} of {len(values)}"
    return f"{np.median(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def select_winner(uplinks: list[Uplink], cost: int, snr: int) -> Uplink:
    """Return the uplink with the least validation cost at an SNR."""
    return min(uplinks, key=lambda one: one.score(cost)[snr])


def compute_ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean of a ratio over trials, and the ends of its 95 % interval."""
    log = np.log(above / below)
    half = stats.t.ppf(0.975, len(log) - 1) * log.std(ddof=1) / np.sqrt(len(log))
    mean, low, high = np.exp([log.mean(), log.mean() - half, log.mean() + half])
    return float(mean), float(low), float(high)


def print_ratios(found: dict[str, list[Uplink]]) -> None:
    head = [f"{snr:g} dB" for snr in SNRS]
    print_head(
        "Digital over the best analogue uplink (geometric mean, 95 % interval)",
        "cost",
        "digital uplink",
        *head,
    )
    for cost, label in enumerate(COSTS.values()):
        for one in found["digital"]:
            cells = []
            for snr in range(len(SNRS)):
                base = select_winner(found["analogue"], cost, snr).select_best(cost)[0][snr]
                mean, low, high = compute_ratio(one.select_best(cost)[0][snr], base)
                cells.append(f"{mean:.3g} ({low:.3g} to {high:.3g})")
            print_row(label, one.name, *cells)
    print_head("Best uplink on validation images", "cost", "kind", *head)
    for cost, label in enumerate(COSTS.values()):
        for kind, uplinks in found.items():
            print_row(
                label, kind, *(select_winner(uplinks, cost, i).name for i in range(len(SNRS)))
            )


def print_thresholds(results: Path, found: dict[str, list[Uplink]]) -> None:
    """Print airtime and joules by the threshold below which a device is silent.

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
        "Cost by threshold: mean of three trials (lowest to highest), * is the least of a row",
        *("cost", "access", "SNR", *head),
    )
    print_row("rounds", "", "", *map(format_spread, rounds))
    last = float(ds["round"][-1])
    for cost, label in enumerate(COSTS.values()):
        for access, each in prices.items():
            for place, snr in enumerate(SNRS):
                values = each[:, cost, place, None] * rounds
                cells = list(map(format_spread, values))
                for k, price in enumerate(each[:, cost, place]):
                    cells[k] = cells[k] if cells[k] != "-" else f"over {last * price:.3g}"
                cells[int(np.nanargmin(values.mean(1)))] += "*"
                print_row(label, access.upper(), f"{snr:g} dB", *cells)
    print_head(
        "Digital at its best threshold over the best analogue uplink (unpaired, 95 % interval)",
        *("cost", "access", *(f"{snr:g} dB" for snr in SNRS)),
    )
    for cost, label in enumerate(COSTS.values()):
        for access, each in prices.items():
            cells = []
            for place in range(len(SNRS)):
                values = each[:, cost, place, None] * rounds
                best = values[int(np.nanargmin(values.mean(1)))]
                base = select_winner(found["analogue"], cost, place).select_best(cost)[0][place]
                mean, low, high = compare_unpaired(best, base)
                cells.append(f"{mean:.3g} ({low:.3g} to {high:.3g})")
            print_row(label, access.upper(), *cells)


def format_spread(values: np.ndarray) -> str:
    """Write the mean (lowest to highest) of trials, or a dash if one did not get there."""
    if np.isnan(values).any():
        return "-"
    return f"{values.mean():.3g} ({values.min():.3g} to {values.max():.3g})"


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


def draw(found: dict[str, list[Uplink]], path: Path) -> None:
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 4.6), layout="constrained")
    digital = found["digital"]
    shown = {
        "digital, all coordinates": (digital[0], "#7F7F7F", "o", "--"),
        "digital, sparse, ten devices": (digital[2], "#E69F00", "s", "--"),
        "the same, silent in deep fades, 4 bits": (digital[-2], "#D55E00", "D", "--"),
        "the same, OFDMA": (digital[-1], "#882255", "v", "-"),
    }
    for cost, (axis, label) in enumerate(zip(axes, COSTS.values(), strict=True)):
        best = [select_winner(found["analogue"], cost, i).select_best(cost)[0][i] for i in range(3)]
        plot_range(axis, np.stack(best), -0.6, "best analogue uplink", "#0072B2", "^", "-")
        for turn, (name, (one, colour, marker, line)) in enumerate(shown.items()):
            plot_range(axis, one.select_best(cost)[0], 0.6 * turn, name, colour, marker, line)
        axis.set(xlabel="SNR (dB)", ylabel=f"{label} to 80 %", yscale="log", xticks=SNRS)
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
    found = {
        "analogue": list(list_analogue(args.results)),
        "digital": list(list_digital(args.results)),
    }
    print_ratios(found)
    print_costs(found)
    print_thresholds(args.results, found)
    draw(found, args.figure)


if __name__ == "__main__":
    main()
