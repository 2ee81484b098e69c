"""What the studies of natural data share: settings that are best on validation data, paired
differences over people, and a figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot as plt
from scipy import stats

from otafl.analysis.paired import adjust_p_values
from studies.common.looks import TYPE
from studies.common.tables import (
    expand_points,
    find_file,
    open_result,
    print_head,
    print_row,
)

ALONE, TUNED = "local_only", "fedavg"
LINKS = {
    "ideal": ("ideal uplink", "#0072B2", "o"),
    "over_the_air": ("Rayleigh fading, -20 dB", "#D55E00", "s"),
}
VIEWS = ("personal_own", "tuned_own")
RATE = "fine_tune_learning_rate"
SHORT = {
    "learning_rate": "step",
    "server_learning_rate": "server",
    "personal_learning_rate": "own",
    "factor_learning_rate": "factors",
    "eta_alpha": "eta",
    RATE: "tuning",
}
"""Settings, as the tables name them."""


@dataclass(frozen=True)
class Study:
    """A study of natural data.

    name : scenario of the final runs; that of the tuning has `_tuning` behind it.
    title : the measure, for tables and the figure.
    people : the devices, in the plural.
    metric : last word of the variables of each device's errors.
    convert : from that metric to the measure.
    controls : names of the controls.
    more : further scenarios of final runs, each with its tuning.
    hidden : controls that the figure leaves out.
    decimals : of differences in the tables.
    """

    name: str
    title: str
    people: str
    metric: str
    convert: Callable[[np.ndarray], np.ndarray]
    controls: tuple[str, ...]
    more: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    decimals: int = 4


@dataclass(frozen=True)
class Setting:
    """A point of a sweep: its method, link, and settings with their values."""

    method: str
    link: str
    values: Mapping[str, float]

    @property
    def training(self) -> tuple[str, str, dict[str, float]]:
        """The method, link and settings without those of the fine-tuning after training."""
        return self.method, self.link, {k: v for k, v in self.values.items() if k != RATE}

    def list_neighbours(self, others: list[Setting], key: str) -> list[float]:
        """List the values of a setting that were tried with all others unchanged."""
        rest = {name: value for name, value in self.values.items() if name != key}
        return sorted(
            one.values[key]
            for one in others
            if {name: value for name, value in one.values.items() if name != key} == rest
        )


@dataclass(frozen=True)
class Choice:
    """The setting of a method that is best on validation data, and the model that is tested."""

    setting: Setting
    view: str
    tried: list[Setting]


def open_points(results: Path, names: Sequence[str]) -> xr.Dataset:
    """Open the points of several scenarios as one sweep; what a point does not have is NaN."""
    parts = []
    for name in names:
        ds = open_result(results, name)
        if "local_steps" not in ds.coords:
            steps = int(expand_points(ds)[0].scenario.training.local_steps)
            ds = ds.assign_coords(local_steps=("zip", np.full(ds.sizes["zip"], steps)))
        parts.append(ds.drop_vars("zip"))
    return xr.concat(parts, "zip", join="outer", coords="minimal", compat="override")


def list_settings(ds: xr.Dataset) -> list[Setting]:
    """List the points of a sweep in their order."""
    more_work = {"rounds": "twice the rounds", "local_steps": "twice the steps"}
    found = []
    for place, label in enumerate(ds["algorithm"].values):
        name = str(label).partition("(")[0]
        for key, said in more_work.items():
            if key in ds.coords and float(ds[key][place]) > float(np.median(ds[key].values)):
                name += f", {said}"
        values = {key: float(value) for key, value in re.findall(r"(\w+)=([\d.e+-]+)", str(label))}
        values[RATE] = float(ds[RATE][place])
        found.append(Setting(name, str(ds["transport"].values[place]), values))
    return found


def read_own_end(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Read a variable of each point after the point's own number of rounds."""
    return ds[name].sel(round=ds["rounds"].astype(ds["round"].dtype)).drop_vars("round")


def choose(ds: xr.Dataset, final: xr.Dataset) -> dict[tuple[str, str], Choice]:
    """Choose the settings of each method and link by the mean validation loss over trials.

    A method is tested by its personal model as it is, or after the fine-tuning, whichever is
    better; Per-FedAvg fine-tunes by itself. A setting is not chosen if a trial of it diverged, here
    or in the final runs, which shows without test data.
    """
    settings = list_settings(ds)
    lost = final["diverged_round"].notnull().any("trial").values
    unstable = [
        one.training for one, is_lost in zip(list_settings(final), lost, strict=True) if is_lost
    ]
    alive = ds["diverged_round"].isnull().all("trial").values
    alive &= [one.training not in unstable for one in settings]
    losses = {}
    for view in VIEWS:
        ends = (
            read_own_end(ds, f"{view}_validation_loss").mean("trial", skipna=False).fillna(np.inf)
        )
        losses[view] = np.where(alive, ends.values, np.inf)
    found = {}
    for key in dict.fromkeys((one.method, one.link) for one in settings):
        places = [i for i, one in enumerate(settings) if (one.method, one.link) == key]
        views = [v for v in VIEWS if not (v == "tuned_own" and key[0] == "per_fedavg")]
        _, place, view = min((losses[v][i], i, v) for v in views for i in places)
        found[key] = Choice(settings[place], view, [settings[i] for i in places])
    return found


def print_settings(study: Study, choices: Mapping[tuple[str, str], Choice]) -> None:
    """Print the chosen settings; `*` marks one without a tried value on each side."""
    rows: dict[str, list[str]] = {}
    for (method, _), choice in choices.items():
        words = []
        for key, value in choice.setting.values.items():
            if len({one.values[key] for one in choice.tried}) == 1:
                continue
            if key == RATE and choice.view == "personal_own":
                continue
            tried = choice.setting.list_neighbours(choice.tried, key)
            mark = "" if tried[0] < value < tried[-1] else "*"
            words.append(f"{SHORT.get(key, key)} {value:g}{mark}")
        rows.setdefault(method, []).append(f"{', '.join(words)} ({len(choice.tried)})")
    uplinks = (name.partition(",")[0] for name, *_ in LINKS.values())
    print_head(f"Best settings (points), {study.people}", "method", *uplinks)
    for method, cells in rows.items():
        print_row(method, *cells, *[""] * (len(LINKS) - len(cells)))


def replace_diverged(errors: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Replace errors [trial, person] of models that diverged by those of a guess [person].

    A person's worst error in another trial stands in where it is above that of a guess, because
    divergence is no gain.
    """
    worst = np.where(np.isfinite(errors), errors, -np.inf).max(0)
    return np.where(np.isfinite(errors), errors, np.maximum(guess, worst))


def read_outcomes(
    study: Study, ds: xr.Dataset, choices: Mapping[tuple[str, str], Choice], guess: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Read the errors [trial, person] of all methods by link.

    A model that diverged counts as a guess or worse.
    Training alone is the same over both links. "fedavg, not fine-tuned" is FedAvg's one model.
    Raises LookupError if a chosen setting has no final run.
    """
    settings = list_settings(ds)

    def read(setting: Setting, view: str) -> np.ndarray:
        if setting not in settings:
            raise LookupError(f"{study.name}: no final run of {setting}")
        own = ds.isel(zip=settings.index(setting))
        values = read_own_end(own, f"device_{view}_test_{study.metric}").transpose(
            "trial", "device"
        )
        lost = own["diverged_round"].notnull().values
        errors = np.where(lost[:, None], np.nan, study.convert(values.values))
        return replace_diverged(errors, guess)

    found: dict[str, dict[str, np.ndarray]] = {link: {} for link in LINKS}
    for (method, link), choice in choices.items():
        for one in LINKS if method.startswith(ALONE) else (link,):
            found[one][method] = read(choice.setting, choice.view)
        if method == TUNED:
            found[link][f"{TUNED}, not fine-tuned"] = read(choice.setting, "own")
    return found


def compare_pairs(own: np.ndarray, base: np.ndarray) -> tuple[float, float, float, float]:
    """Compare errors [trial, person], averaged over trials, paired by person.

    Returns the mean difference, the ends of its 95 % interval over people, and the t-test's p.
    """
    gap = (own - base).mean(0)
    mean, error = float(gap.mean()), float(gap.std(ddof=1)) / math.sqrt(len(gap))
    half = float(stats.t.ppf(0.975, len(gap) - 1)) * error
    return mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, len(gap) - 1))


def print_results(study: Study, outcomes: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Print errors and paired differences over people, for both uplinks."""
    for link, methods in outcomes.items():
        trials, people = methods[TUNED].shape
        said = f"{study.title}, {LINKS[link][0]}: {people} {study.people}, {trials} trials"
        bases = (ALONE, TUNED)
        print_head(said, "method", "mean", f"minus {ALONE}", "p (Holm)", f"minus {TUNED}")
        rivals = [n for n in methods if n != ALONE and n not in study.controls]
        base = methods[ALONE]
        p_values = np.array([compare_pairs(methods[n], base)[3] for n in rivals])
        corrected = dict(zip(rivals, adjust_p_values(p_values), strict=True))
        for name in sorted(methods, key=lambda n: float(methods[n].mean())):
            own = methods[name]
            cells = [
                "" if one == name else format_difference(study, own, methods[one]) for one in bases
            ]
            p = f"{corrected[name]:.2g}" if name in corrected else ""
            print_row(name, f"{own.mean():.4f}", cells[0], p, *cells[1:])


def format_difference(study: Study, own: np.ndarray, base: np.ndarray) -> str:
    """Write the mean difference over people and its 95 % interval."""
    pair = compare_pairs(own, base)[:3]
    mean, low, high = (f"{one:+.{study.decimals}f}" for one in pair)
    return f"{mean} [{low}, {high}]"


def draw(
    study: Study,
    outcomes: Mapping[str, Mapping[str, np.ndarray]],
    path: Path,
    linear: float | None,
) -> None:
    """Draw the paired differences from training alone, logarithmic beyond `linear`.

    Controls and training alone use no uplink and are drawn once.
    """
    plt.rcParams.update(TYPE | {"axes.grid": True, "grid.alpha": 0.3})
    figure, axis = plt.subplots(figsize=(10, 5.8), layout="constrained")
    first = outcomes["ideal"]
    unlinked = [n for n in first if n in study.controls or n.startswith(ALONE)]
    names = [n for n in first if n not in (ALONE, *study.hidden)]
    names.sort(key=lambda n: -float(first[n].mean()))
    looks = {"none": ("no uplink", "#000000", "D"), **LINKS}
    for link, shift in {"none": 0.0, "ideal": 0.14, "over_the_air": -0.14}.items():
        methods = outcomes.get(link, first)
        places = [
            i for i, n in enumerate(names) if n in methods and (n in unlinked) == (link == "none")
        ]
        base = methods[ALONE]
        pairs = [compare_pairs(methods[names[i]], base) for i in places]
        mean, low, high, _ = np.array(pairs).T
        said, colour, marker = looks[link]
        axis.errorbar(
            *(mean, np.array(places) + shift),
            xerr=[mean - low, high - mean],
            fmt=marker,
            color=colour,
            capsize=2,
            ms=5,
            label=said,
        )
    axis.set_yticks(range(len(names)), names)
    axis.axvline(0, color="black", lw=1)
    said = f"{study.title[0].lower()}{study.title[1:]} minus that of training alone"
    if linear is None:
        axis.set(xlabel=f"{said} (95 % interval)")
    else:
        axis.set(xlabel=f"{said} (logarithmic beyond {linear:g})")
        axis.set_xscale("symlog", linthresh=linear)
    axis.legend(loc="best" if linear is None else "lower left")
    figure.savefig(path, dpi=100)
    plt.close(figure)
    print(f"\nfigure: {path}")


def run_study(
    study: Study,
    results: Path,
    figure: Path,
    measure_controls: Callable[[xr.Dataset], np.ndarray],
    linear: float | None,
) -> dict[str, dict[str, np.ndarray]]:
    """Print the tables of a study, draw its figure, and return the errors by link and method.

    measure_controls computes the errors [person, controls + 1] of the controls and of a guess from
    the final runs' scenario. They are read from a file if there is one, which needs no data.
    """
    names = (study.name, *study.more)
    ds = open_points(results, names)
    path = find_file(results, f"{study.name}_controls.csv")
    if not path.exists():
        np.savetxt(path, measure_controls(open_result(results, study.name)), "%.6e")
    controls = np.loadtxt(path)
    choices = choose(open_points(results, [f"{name}_tuning" for name in names]), ds)
    outcomes = read_outcomes(study, ds, choices, controls[:, -1])
    for methods in outcomes.values():
        trials = len(methods[TUNED])
        for place, name in enumerate(study.controls):
            methods[name] = np.tile(controls[:, place], (trials, 1))
    print_settings(study, choices)
    print_results(study, outcomes)
    draw(study, outcomes, figure, linear)
    return outcomes
