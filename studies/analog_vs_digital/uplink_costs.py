"""Costs of the uplinks of `analog_vs_digital.yaml` until a target, from the study's results.

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

import otafl
from studies.common.tables import open_result

STUDY = "analog_vs_digital"
TARGET, CHOOSE = 0.8, 0.79
"""A trial may stop at the target on test samples before it is there on validation samples."""
SNRS = (-20, 0, 20)
COSTS = ("airtime_s", "tx_energy_j")
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


class Goal(NamedTuple):
    """A cost that is to be least, at full power or at the best power of each uplink."""

    label: str
    title: str
    cost: int
    chooses_power: bool = False


AIRTIME = Goal("airtime, s", "Airtime", 0)
JOULES = Goal(
    "best power, J",
    "Joules at the best of three powers",
    1,
    chooses_power=True,
)
FULL_POWER = Goal("full power, J", "Joules at full power", 1)
GOALS = (AIRTIME, FULL_POWER, JOULES)
POWER_STEP = 10.0 ** ((SNRS[1] - SNRS[0]) / 10)
"""Ratio of the powers at neighbouring SNRs."""


class Uplink(NamedTuple):
    """A cost [setting, SNR, trial] of an uplink until validation and test are there."""

    name: str
    choose: np.ndarray
    cost: np.ndarray
    rounds: np.ndarray
    """[setting, SNR, trial] rounds until the test target"""
    settings: list[str]

    def select_best(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return cost and rounds [SNR, trial] at the setting that is best on validation data."""
        late = np.where(
            np.isnan(self.choose), 10 * np.nanmax(self.choose, initial=1e-9), self.choose
        )
        best = late.mean(-1).argmin(0)
        at = best, np.arange(len(SNRS))
        return self.cost[at], self.rounds[at], [self.settings[i] for i in best]

    def score(self) -> np.ndarray:
        """Return the validation cost [SNR] of the best setting, infinite if a trial misses it."""
        return np.where(np.isnan(self.choose), np.inf, self.choose).mean(-1).min(0)


class Measured(NamedTuple):
    """Costs [cost, setting, SNR, trial] of an uplink at full power, and its rounds."""

    name: str
    choose: np.ndarray
    cost: np.ndarray
    rounds: np.ndarray
    settings: list[str]

    def pursue(self, goal: Goal) -> Uplink:
        """Return the uplink with the settings from which a goal's best is chosen.

        A lower power has the learning and the airtime of a lower SNR, if the study has that SNR.
        """
        choose, cost = self.choose[goal.cost], self.cost[goal.cost]
        if not goal.chooses_power:
            return Uplink(self.name, choose, cost, self.rounds, self.settings)
        powers = range(len(SNRS))
        return Uplink(
            self.name,
            np.concatenate([lower_power(choose, n) for n in powers]),
            np.concatenate([lower_power(cost, n) for n in powers]),
            np.concatenate([move_down(self.rounds, n) for n in powers]),
            [f"{said}, power {POWER_STEP**-n:g}" for n in powers for said in self.settings],
        )


Found = dict[Goal, dict[str, list[Uplink]]]
"""Analogue and digital uplinks by goal."""


def lower_power(joules: np.ndarray, steps: int) -> np.ndarray:
    """Return joules [setting, SNR, ...] at a power lower by some steps, the same if none is."""
    lower = move_down(joules, steps)
    lower[:, steps:] /= POWER_STEP**steps
    return lower


def move_down(values: np.ndarray, steps: int) -> np.ndarray:
    """Return values [setting, SNR, ...] of SNRs lower by some places, the same if none is."""
    moved = values.copy()
    moved[:, steps:] = values[:, : len(SNRS) - steps]
    return moved


def open_study(results: Path, part: str = "") -> xr.Dataset:
    return open_result(results, STUDY + part)


def find_costs(ds: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return validation and test costs [cost, point, SNR, trial], rounds [point, SNR, trial].

    A trial ends when it is at the target on test data. Where it is not there on validation data by
    then, its end counts.
    """
    found = [
        otafl.compute_cost_to_reach(ds, name, goal)
        for name, goal in (("validation_accuracy", CHOOSE), ("test_accuracy", TARGET))
    ]
    order = ("zip", "snr_db", "trial")
    choose, cost = (np.stack([f[c].transpose(*order).values for c in COSTS]) for f in found)
    choose = np.where(np.isnan(choose), cost, choose)
    return choose, cost, found[1]["round"].transpose(*order).values


def list_labels(ds: xr.Dataset) -> list[tuple[str, str, str]]:
    labels = (
        np.broadcast_to(ds[n].values, ds.sizes["zip"]) for n in ("transport", "power", "codec")
    )
    return [
        (str(t).removesuffix("(gain_threshold=0)"), str(p), str(c))
        for t, p, c in zip(*labels, strict=True)
    ]


def list_analogue(results: Path) -> Iterator[Measured]:
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
        yield Measured(name, *(np.stack(a, -3) for a in arrays), list(said))


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
    return np.where(np.isnan(found[0]), found[1], found[0]), found[1], first.values


def list_digital(results: Path) -> Iterator[Measured]:
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
        yield Measured(f"{name}, TDMA", *arrays, rates)
    label = "digital(gain_threshold=0.3)"
    place = next(i for i, (t, _, c) in enumerate(old) if t == label and c.startswith("topk"))
    plain = first.isel(zip=place, snr_db=0).sel(learning_rate=0.2)
    yield from price_all("largest 0.3 %, 32 bits, silent", results, [(0.3, plain)], (TDMA,))
    short = "largest 0.3 %, 4 bits, silent"
    yield from price_all(short, results, [(0.3, open_study(results, "_sparse"))])


def price_all(
    name: str,
    results: Path,
    points: list[tuple[float, xr.Dataset]],
    accesses: tuple[str, ...] = (TDMA, OFDMA),
) -> Iterator[Measured]:
    for access in accesses:
        priced = [compute_prices(one, find_fades(results, access, g)) for g, one in points]
        choose, cost, rounds = zip(*priced, strict=True)
        each = np.stack([np.broadcast_to(r, (len(SNRS), len(r))) for r in rounds])
        said = [f"threshold {g:g}" for g, _ in points]
        yield Measured(
            f"{name}, {access.upper()}", np.stack(choose, 1), np.stack(cost, 1), each, said
        )


def select_winner(uplinks: list[Uplink], snr: int) -> Uplink:
    """Return the uplink with the least validation cost at an SNR."""
    return min(uplinks, key=lambda one: one.score()[snr])
