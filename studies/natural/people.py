"""Natural people: personalised methods on data with a natural split by people, each at its
best settings on validation data, against training alone, fine-tuned averaging and two controls.

    otafl sweep studies/natural/natural_people_tuning.yaml
    otafl sweep studies/natural/natural_people.yaml
    python -m studies.natural.people [results] [--figure natural_people.png]

The people's data are read for the controls of each person (`otafl data get parkinsons`).
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from studies.common.tables import command, expand_points, open_result, parse_study_arguments
from studies.natural.shared import (
    ALONE,
    Study,
    compare_pairs,
    list_settings,
    read_own_end,
    run_study,
)

STUDY = Study(
    name="natural_people",
    title="Squared error",
    people="people",
    metric="mse",
    convert=np.asarray,
    controls=("person's mean", "person's line in time"),
)


def measure_controls(ds: xr.Dataset) -> np.ndarray:
    """Measure the squared errors of the controls and of a guess of 0 on each person's test."""
    data = expand_points(ds)[0].scenario.data.read()
    assert data.owner is not None
    assert data.owner_test is not None
    assert data.time is not None
    assert data.time_test is not None
    rows = []
    for person in np.unique(data.owner):
        train, test = data.owner == person, data.owner_test == person
        y, found = data.y_train[train, 0].astype(float), data.y_test[test, 0].astype(float)
        line = np.polyval(np.polyfit(data.time[train], y, 1), data.time_test[test])
        rows.append([((found - at) ** 2).mean() for at in (y.mean(), line, 0.0)])
    return np.array(rows)


def print_same_step(ds: xr.Dataset) -> None:
    """Print what Ditto's personal step gives training alone, in trials without divergence."""
    settings = list_settings(ds)
    rate = "personal_learning_rate"
    ditto = next(one for one in settings if (one.method, one.link) == ("ditto", "ideal"))
    alone = {one.values[rate]: one for one in settings if one.method == ALONE}
    same = alone.pop(ditto.values[rate])
    pairs = {f"ditto minus {ALONE}, both": (ditto, same)} | {
        f"{ALONE} minus itself at {step:g},": (same, one) for step, one in alone.items()
    }
    for words, pair in pairs.items():
        both = ds.isel(zip=[settings.index(one) for one in pair])
        kept = both["diverged_round"].isnull().all("zip").values
        errors = read_own_end(both, "device_tuned_own_test_mse").transpose("zip", "trial", "device")
        own, base = errors.values[:, kept]
        mean, low, high, _ = compare_pairs(own, base)
        print(
            f"\n{words} at a personal step of {same.values[rate]:g}, in {kept.sum()} of "
            f"{len(kept)} trials: {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        )


def main() -> None:
    args = parse_study_arguments(__doc__, "natural_people.png")
    run_study(STUDY, args.results, args.figure, measure_controls, linear=0.01)
    print_same_step(open_result(args.results, STUDY.name))


if __name__ == "__main__":
    command(main)
