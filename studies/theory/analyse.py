"""Theory meets simulation: excess risk of federated linear regression, simulated and by its closed
form, over rounds, devices, power policies and what is sent.

    for name in rounds devices people power models; do
      otafl sweep studies/theory/theory_$name.yaml
    done
    python -m studies.theory.analyse [results] [--figure theory.png]

The people's data are read for their closed form (`otafl data get parkinsons`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from scipy import stats

from otafl.results.end_values import count_diverged
from otafl.scenario import Point
from studies.common.looks import TYPE, get_policy_style
from studies.common.tables import (
    command,
    expand_points,
    find_file,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)
from studies.theory.second_moment import (
    average_end,
    make_equal_gains,
    make_policy_rule,
    read_problems,
    run_model_theory,
    run_theory,
)

NAMES = ("rounds", "devices", "people", "power", "models")
BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
LEVELS = {1.0: (BLUE, "o", "0 dB"), 10.0: (GREEN, "s", "10 dB"), 1000.0: (ORANGE, "^", "30 dB")}
"""Energy over the noise's power density -> colour, marker and name."""
SENT = (
    ("increments", BLUE, "o"),
    ("models, constant SNR", ORANGE, "s"),
    ("models, SNR as $t^2$", GREEN, "^"),
)
PEOPLE = 42
"""People of the data set, all of whom are in every trial if so many devices take part."""
LAST = 0.5
"""Part of the rounds, at the end, over which a floor is averaged."""
UNBOUNDED = "ci"
"""Policy whose risk has no finite mean over Rayleigh fading."""


class Curve(NamedTuple):
    """Simulated values [n, trial], and those of the closed form [n], at places x [n]."""

    x: np.ndarray
    simulated: np.ndarray
    law: np.ndarray


def estimate_mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over trials, the last axis, and half of its 95 % interval."""
    count = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(count)
    return values.mean(-1), float(stats.t.ppf(0.975, count - 1)) * error


def format_ratio(simulated: np.ndarray, law: float) -> str:
    """Write the ratio of a simulated mean to its closed form, with its interval."""
    mean, half = estimate_mean(simulated / law)
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def iterate_points(ds: xr.Dataset) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Each point with its rounds [n] and the excess risk [n, trial]."""
    axes = [dim for dim in ds["excess_risk"].dims if dim not in ("trial", "round")]
    risk = ds["excess_risk"].transpose(*axes, "round", "trial")
    flat = risk.values.reshape(-1, *risk.shape[-2:])
    yield from zip(
        expand_points(ds), [ds["round"].values.astype(int)] * len(flat), flat, strict=True
    )


def compute_floor(rounds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Time average of each trial, [trial]."""
    return np.asarray(values[rounds >= (1.0 - LAST) * rounds[-1]].mean(0))


def compare_rounds(ds: xr.Dataset) -> dict[float, Curve]:
    """The risk over rounds, by the energy."""
    found = {}
    for point, rounds, risk in iterate_points(ds):
        problem, scenario = read_problems(point, 1)[0], point.scenario
        gains = make_equal_gains(scenario.devices.count, scenario.power.gamma)
        law = run_theory(problem, rounds[-1], scenario.algorithm.learning_rate, gains)
        found[scenario.power.gamma] = Curve(rounds, risk, law[rounds])
    print_head(
        "Twenty users: simulated over closed form", "energy", "round 12", "round 40", "floor"
    )
    for gamma, curve in found.items():
        cells = [
            format_ratio(curve.simulated[place], float(curve.law[place]))
            for place in (list(curve.x).index(12), list(curve.x).index(40))
        ]
        floor = compute_floor(curve.x, curve.simulated)
        law = average_end(curve.law, int(np.argmax(curve.x >= (1 - LAST) * curve.x[-1])))
        print_row(LEVELS[gamma][2], *cells, format_ratio(floor, float(law)))
    return found


def read_laws(point: Point, rounds: np.ndarray, trials: int, store: Path) -> np.ndarray:
    """Floors of the closed form, [trial]; those of people are read from a file if there is one.

    The file lets the figure be drawn without the people's data.
    """
    scenario = point.scenario
    count, gamma = scenario.devices.count, scenario.power.gamma
    path = find_file(store, f"theory_people_{count}_{gamma:g}.csv")
    real = scenario.data.name == "parkinsons"
    if real and path.exists():
        return np.loadtxt(path, ndmin=1)
    gains = make_equal_gains(count, gamma, count if scenario.robust.groups == "devices" else 1)
    step = scenario.algorithm.learning_rate
    laws = [
        compute_floor(rounds, run_theory(one, rounds[-1], step, gains)[rounds, None])[0]
        for one in read_problems(point, trials if real and count < PEOPLE else 1)
    ]
    if real:
        np.savetxt(path, laws, "%.6e")
    return np.array(laws)


def compare_floors(ds: xr.Dataset, title: str, store: Path) -> dict[tuple[float, bool], Curve]:
    """Floors by the number of devices, by the energy and whether each device has its own slot."""
    found: dict[tuple[float, bool], list[tuple[int, np.ndarray, float]]] = {}
    for point, rounds, risk in iterate_points(ds):
        scenario = point.scenario
        count, gamma = scenario.devices.count, scenario.power.gamma
        alone = scenario.robust.groups == "devices"
        laws = read_laws(point, rounds, risk.shape[1], store)
        # each trial has people of its own, unless all take part
        floor = compute_floor(rounds, risk) * laws.mean() / laws
        found.setdefault((gamma, alone), []).append((count, floor, float(laws.mean())))
    curves = {}
    print_head(title, "energy", "uplink", "devices", "closed form", "simulated over closed form")
    for (gamma, alone), rows in found.items():
        for count, floor, law in rows:
            kind = "one slot a device" if alone else "one sum"
            print_row(LEVELS[gamma][2], kind, count, f"{law:.3g}", format_ratio(floor, law))
        places = np.log([count for count, _, _ in rows])
        slopes = np.polyfit(places, np.log([floor for _, floor, _ in rows]), 1)[0]
        mean, half = estimate_mean(slopes)
        law = np.polyfit(places, np.log([one for _, _, one in rows]), 1)[0]
        said = f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"
        print_row(LEVELS[gamma][2], kind, "exponent", f"{law:.2f}", said)
        curves[gamma, alone] = Curve(
            np.array([count for count, _, _ in rows]),
            np.array([floor for _, floor, _ in rows]),
            np.array([law for _, _, law in rows]),
        )
    return curves


def compare_policies(ds: xr.Dataset) -> dict[str, Curve]:
    """Risk of power policies after the last round by the SNR, and where it falls until the end."""
    found: dict[str, list[tuple[float, np.ndarray, float]]] = {}
    courses: dict[str, np.ndarray] = {}
    ratios: dict[str, list[str]] = {}
    for point, rounds, risk in iterate_points(ds):
        scenario, law = point.scenario, np.nan
        snr = float(point.coords["snr_db"])
        if scenario.power.name != UNBOUNDED:
            rule = make_policy_rule(scenario.power, 10 ** (snr / 10), scenario.devices.count)
            problem, step = read_problems(point, 1)[0], scenario.algorithm.learning_rate
            course = run_theory(problem, rounds[-1], step, rule)[rounds, None]
            floors = compute_floor(rounds, risk), compute_floor(rounds, course)[0]
            ratios.setdefault(scenario.power.name, []).append(format_ratio(*floors))
            law = course[-1, 0]
        found.setdefault(scenario.power.name, []).append((snr, risk[-1], law))
        courses.setdefault(scenario.power.name, risk)  # of the least SNR
    levels = [f"{snr:g} dB" for snr, _, _ in next(iter(found.values()))]
    print_head("Power policies: simulated over closed form", "policy", *levels)
    for name, cells in ratios.items():
        print_row(f"`{name}`", *cells)
    best = "cao_static"
    print_head(f"Risk over that of `{best}` after round {rounds[-1]}, paired", "policy", *levels)
    means = (estimate_mean(last) for _, last, _ in found[best])
    print_row(f"`{best}`: risk", *(f"{mean:.3g} ± {half:.1g}" for mean, half in means))
    for name, rows in found.items():
        if name != best:
            pairs = zip(rows, found[best], strict=True)
            print_row(
                f"`{name}`", *(format_quotient(own, base) for (_, own, _), (_, base, _) in pairs)
            )
    shown = [list(rounds).index(one) for one in (20, 60, 72)]
    title = f"Risk over that of `{best}` at {levels[0]} by round, paired"
    print_head(title, "policy", *(f"round {rounds[i]}" for i in shown))
    for name, course in courses.items():
        if name != best:
            print_row(f"`{name}`", *(format_quotient(course[i], courses[best][i]) for i in shown))
    return {
        name: Curve(*(np.array([row[i] for row in rows]) for i in range(3)))
        for name, rows in found.items()
    }


def format_quotient(own: np.ndarray, base: np.ndarray) -> str:
    """Write the geometric mean of the quotients of pairs of trials, with its interval."""
    mean, half = estimate_mean(np.log(own / base))
    low, middle, high = np.exp([mean - half, mean, mean + half])
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def compare_models(ds: xr.Dataset) -> list[Curve]:
    """The risk over rounds of increments and of whole models."""
    found = []
    for point, rounds, risk in iterate_points(ds):
        scenario, problem = point.scenario, read_problems(point, 1)[0]
        algorithm, channel = scenario.algorithm, scenario.channel
        steps = algorithm.learning_rate / (1.0 + algorithm.decay * np.arange(rounds[-1]))
        growth = float(point.coords["snr_growth"])
        models = algorithm.sends == "model"
        law = run_model_theory(problem, steps, 10 ** (channel.snr_db / 10), growth, models)
        found.append(Curve(rounds, risk, law[rounds]))
    print_head(
        "Increments and whole models",
        "sent",
        "exponent",
        "its closed form",
        "last risk over closed form",
    )
    for (name, _, _), curve in zip(SENT, found, strict=True):
        early, late = (list(curve.x).index(r) for r in (60, 240))
        grown = np.log(curve.simulated[late - 6 : late + 7].mean(0))
        grown = (grown - np.log(curve.simulated[early - 1 : early + 2].mean(0))) / np.log(4.0)
        law = np.log(
            curve.law[late - 6 : late + 7].mean() / curve.law[early - 1 : early + 2].mean()
        )
        mean, half = estimate_mean(grown)
        said = f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"
        last = curve.simulated[-4:].mean(0), float(curve.law[-4:].mean())
        print_row(name, said, f"{law / np.log(4.0):.2f}", format_ratio(*last))
    return found


def draw_curve(axis: Axes, curve: Curve, colour: str, marker: str, label: str, **more: Any) -> None:
    """Draw the closed form as a line, and the simulation as markers with intervals."""
    if np.isfinite(curve.law).any():
        axis.plot(curve.x, curve.law, color=colour, lw=1.3, ls=more.get("ls", "-"))
    mean, half = estimate_mean(curve.simulated)
    count = len(curve.x)
    every = np.arange(0, count, max(1, count // 12))
    if more.get("is_log"):
        every = np.unique(np.geomspace(1, count, 12).astype(int) - 1)
    low = np.minimum(half, 0.9 * mean)
    axis.errorbar(
        *(curve.x[every], mean[every], [low[every], half[every]]),
        fmt=marker,
        color=colour,
        ms=5,
        capsize=2,
        elinewidth=1,
        label=label,
        mfc=more.get("mfc", colour),
    )


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw four panels: rounds, devices, power policies, increments and models."""
    plt.rcParams.update(TYPE | {"legend.fontsize": 9.5})
    figure, axes = plt.subplots(2, 2, figsize=(10, 8.4), layout="constrained")
    for gamma, curve in found["rounds"].items():
        draw_curve(axes[0, 0], curve, *LEVELS[gamma])
    axes[0, 0].set(title="Rounds (20 users)", xlabel="round", yscale="log")
    for (gamma, alone), curve in found["devices"].items():
        colour, marker, name = LEVELS[gamma]
        said = f"{name}, {'FDM' if alone else 'one sum'}"
        style = {"ls": "--", "mfc": "white"} if alone else {}
        draw_curve(axes[0, 1], curve, colour, marker, said, **style)
    for (gamma, _), curve in found["people"].items():
        draw_curve(
            axes[0, 1], curve, BLACK, LEVELS[gamma][1], f"{LEVELS[gamma][2]}, people", ls=":"
        )
    axes[0, 1].set(title="Devices", xlabel="devices", xscale="log", yscale="log")
    axes[0, 1].set_xticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    axes[0, 1].minorticks_off()
    axes[0, 1].set_ylim(3e-5, 300)
    for name, curve in found["power"].items():
        style = get_policy_style(name)
        draw_curve(axes[1, 0], curve, style["color"], style["marker"], name, ls=style["ls"])
    axes[1, 0].set(title="Power policies (20 users, round 80)", xlabel="SNR [dB]", yscale="log")
    axes[1, 0].set_ylim(1e-8, 1e-1)
    axes[1, 0].annotate(
        f"{UNBOUNDED} diverges",
        (-20, 1e-1),
        (-19, 1e-2),
        color=get_policy_style(UNBOUNDED)["color"],
        arrowprops={"arrowstyle": "->", "color": get_policy_style(UNBOUNDED)["color"]},
    )
    for (name, colour, marker), curve in zip(SENT, found["models"], strict=True):
        kept = Curve(*(one[1:] for one in curve))
        draw_curve(axes[1, 1], kept, colour, marker, name, is_log=True)
    axes[1, 1].set(title="Increments and whole models", xlabel="round", xscale="log", yscale="log")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.set_ylabel("excess risk")
        places = {"loc": "upper right", "ncols": 2} if axis is axes[0, 1] else {}
        axis.legend(frameon=False, **places)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"\nfigure: {path}")


def main() -> None:
    args = parse_study_arguments(__doc__, "theory.png")
    results = {name: count_diverged(open_result(args.results, f"theory_{name}")) for name in NAMES}
    found = {
        "rounds": compare_rounds(results["rounds"]),
        "devices": compare_floors(results["devices"], "Users: floor", args.results),
        "people": compare_floors(
            results["people"], "People with Parkinson's disease: floor", args.results
        ),
        "power": compare_policies(results["power"]),
        "models": compare_models(results["models"]),
    }
    draw(found, args.figure)


if __name__ == "__main__":
    command(main)
