"""Airtime and radiated joules until 80 % test accuracy, analogue beside digital. Step sizes, shares
kept and thresholds are chosen by the cost to the target on validation data, for each uplink and SNR
alike.

    otafl sweep scenarios/studies/analog_vs_digital.yaml
    python scripts/analog_vs_digital.py [results/analog_vs_digital] [--figure analog_vs_digital.png]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from looks import POLICIES, TYPE
from matplotlib import pyplot as plt
from scipy import stats

import otafl

MARKERS = "osD^v<>PX*hp"
TUNED = re.compile(r"\(?(step|keep|gain_threshold)=[\d.e-]+\)?")
ON_AVERAGE = ("tci", "cao_average", "gain_threshold")
"""What keeps the power budget on the average over fading, not in each round."""

SHORT = {
    "over_the_air(quadrature=True)": "analogue, two reals a use,",
    "over_the_air": "analogue, one real a use,",
    "qsgd(bits=4, norm=max, bucket=512)": "4 bits",
    "(constraint=peak)": " at its peak",
    "obda": "1 bit",
    "topk": "sparse",
    "best 5": "five best heard",
    "identity": "",
    "()": "",
}
COSTS = {"airtime_s": "uplink airtime (s)", "tx_energy_j": "radiated (J)"}


class Uplink(NamedTuple):
    """Costs [settings, SNR, trial] of an uplink at each of its tuned settings, until validation
    and test samples are at the target."""

    name: str
    analog: bool
    average: bool
    choose: dict[str, np.ndarray]
    cost: dict[str, np.ndarray]
    settings: list[str]

    def select_tuned(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Costs [SNR, trial] at the setting cheapest on validation data, and which that is."""
        longest = np.nanmax(self.choose[name], initial=0.0)
        late = np.nan_to_num(self.choose[name], nan=10 * longest)  # as one that never gets there
        best = late.mean(2).argmin(0)
        return self.cost[name][best, np.arange(len(best))], [self.settings[i] for i in best]


def list_uplinks(result: xr.Dataset, target: float) -> list[Uplink]:
    """Group the sweep's rows that differ in what is tuned alone."""
    labels = [
        (str(transport), str(power), str(codec), f"best {n:g}" if chosen != "uniform" else "")
        for transport, power, codec, chosen, n in zip(
            *(
                result[name].values
                for name in ("transport", "power", "codec", "selection", "devices_participants")
            ),
            strict=True,
        )
    ]
    # a trial may stop at the target on test samples before it is there on the others
    found = {
        "choose": otafl.compute_cost_to_reach(result, "validation_accuracy", target - 0.01),
        "cost": otafl.compute_cost_to_reach(result, "test_accuracy", target),
    }
    families: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        families.setdefault(_name(label), []).append(i)
    (joint,) = result["transport"].dims
    out = []
    for name, rows in families.items():
        costs = {
            kind: {
                cost: one[cost]
                .isel({joint: rows})
                .transpose(joint, "learning_rate", "snr_db", "trial")
                .values.reshape(-1, one.sizes["snr_db"], one.sizes["trial"])
                for cost in COSTS
            }
            for kind, one in found.items()
        }
        tried = [
            {"step size": float(rate), **_parse_tuned(labels[i])}
            for i in rows
            for rate in result["learning_rate"].values
        ]
        chosen = [", ".join(_iterate_sentences(one, tried)) for one in tried]
        kept = " ".join(labels[rows[0]])
        average = any(word in kept for word in ON_AVERAGE) and "constraint=peak" not in kept
        out.append(Uplink(name, "over_the_air" in kept, average, **costs, settings=chosen))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", nargs="?", type=Path, default=Path("results/analog_vs_digital"))
    parser.add_argument("--target", type=float, default=0.8, help="default %(default)s")
    parser.add_argument("--figure", type=Path, default=Path("analog_vs_digital.png"))
    args = parser.parse_args()
    result = otafl.open_results(args.result)
    snrs, found = result["snr_db"].values, list_uplinks(result, args.target)
    plt.rcParams.update(TYPE)
    figure, axes = plt.subplots(1, 2, figsize=(10, 8), layout="constrained")
    colours = [colour for colour, _, _ in POLICIES.values()]
    goal = f"{100 * args.target:g} %"
    for axis, (cost, label) in zip(axes, COSTS.items(), strict=True):
        print(f"\n{label} to {goal}: median of {result.sizes['trial']} trials (lowest to highest)")
        _print_head("uplink", "budget", *(f"{snr:g} dB" for snr in snrs))
        for uplink in found:
            values, _ = uplink.select_tuned(cost)
            _print_row(
                uplink.name, "average" if uplink.average else "peak", *map(_format_cell, values)
            )
            kind = [one for one in found if one.analog == uplink.analog]
            turn = kind.index(uplink)
            style = {"color": colours[turn], "marker": MARKERS[turn], "ms": 6}
            style |= {"ls": "-"} if uplink.analog else {"ls": "--", "mfc": "none"}
            axis.plot(snrs, np.median(values, 1), label=uplink.name, **style)
        axis.set(xlabel="SNR (dB)", ylabel=f"{label} to {goal}", yscale="log")
        axis.grid(alpha=0.3)
        print(f"\n{label}: the best digital uplink over the best analogue one, in the same trials")
        _print_head("budget", *(f"{snr:g} dB" for snr in snrs))
        for budget, eligible_mask in {
            "peak": [one for one in found if not one.average],
            "peak or average": found,
        }.items():
            _print_row(budget, *(_format_ratio(eligible_mask, cost, i) for i in range(len(snrs))))
    print("\nsettings chosen, by SNR; * is the least or the most that was tried")
    _print_head("uplink", "to reach it with the least", *(f"{snr:g} dB" for snr in snrs))
    for uplink in found:
        for cost, label in COSTS.items():
            _print_row(uplink.name, label, *uplink.select_tuned(cost)[1])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(args.figure, dpi=150)
    print(f"\nfigure: {args.figure}")


def _name(label: tuple[str, str, str, str]) -> str:
    """Name an uplink without what is tuned and what goes without saying."""
    transport, power, codec, chosen = label
    text = TUNED.sub("", " ".join([transport, power.replace("full", ""), codec, chosen]))
    for said, short in SHORT.items():
        text = text.replace(said, short)
    if "gain_threshold" in transport:
        text += " no deep fades"
    return " ".join(text.split())


def _parse_tuned(label: tuple[str, str, str, str]) -> dict[str, float]:
    parts = (found.group(0).strip("()") for found in TUNED.finditer(" ".join(label)))
    return {key: float(value) for key, _, value in (part.partition("=") for part in parts)}


def _iterate_sentences(one: dict[str, float], tried: list[dict[str, float]]) -> Iterator[str]:
    """Say what was chosen, with a star at the least and the most that was tried."""
    for key, value in one.items():
        values = {other[key] for other in tried}
        edge = len(values) > 1 and value in (min(values), max(values))
        yield f"{key.replace('_', ' ')} {value:g}" + "*" * edge


def _format_ratio(eligible_mask: list[Uplink], cost: str, snr: int) -> str:
    """Geometric mean over the trials of digital over analogue, with its 95 % interval."""
    best = {}
    for analog in (True, False):
        each = [one.select_tuned(cost)[0][snr] for one in eligible_mask if one.analog == analog]
        reached = [values for values in each if not np.isnan(values).any()]
        if not reached:
            return "not reached"
        best[analog] = min(reached, key=np.median)
    log = np.log(best[False] / best[True])
    half = stats.t.ppf(0.975, len(log) - 1) * log.std(ddof=1) / np.sqrt(len(log))
    low, mean, high = np.exp([log.mean() - half, log.mean(), log.mean() + half])
    return f"{mean:.3g} ({low:.3g} to {high:.3g})"


def _format_cell(values: np.ndarray) -> str:
    short = np.isnan(values).sum()
    if short:
        return f"not reached in {short} of {len(values)}"
    return f"{np.median(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def _print_head(*cells: str) -> None:
    _print_row(*cells)
    print("|" + "---|" * len(cells))


def _print_row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
