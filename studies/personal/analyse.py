"""Personalised methods where training alone is not enough, five steps a round: each at its best
settings on validation samples, and what it gains over training alone and over fine-tuned FedAvg in
the same trials.

    for f in studies/personal/personal_small_data*.yaml; do otafl sweep $f; done
    python -m studies.personal.analyse [results]
"""

from __future__ import annotations

import re
from pathlib import Path

import xarray as xr

from otafl.results.end_values import select_end_total
from studies.common.tables import (
    command,
    compute_gain,
    join_grids,
    make_study_parser,
    open_result,
    print_head,
    print_row,
)

ENDS = ("", "_ends", "_more_ends")
BASES = ("local_only", "fedavg, fine-tuned")
KINDS = {"personal_own": "", "tuned_own": ", fine-tuned", "own": ", global model"}
"""Start of a variable's name -> what its model is called beside the method."""
SHORT = {
    "learning_rate": "step",
    "personal_learning_rate": "own",
    "factor_learning_rate": "factors",
    "server_learning_rate": "server",
    "fine_tuning": "tuning",
}
"""Settings, as the table names them."""
APART = {"weights=cosine": ", cosine", "attention=0": ", silent", "adaptive=F": ", fixed share"}
"""Setting -> what makes a method of its own of it."""


def name_method(label: str) -> str:
    """Name a method by its label, apart where a setting makes another method of it."""
    name = label.partition("(")[0] + "".join(said for key, said in APART.items() if key in label)
    steps = {float(step) for step in re.findall(r"learning_rate=([\d.e-]+)", label)}
    return f"{name}, one step" if name == "apfl" and len(steps) == 1 else name


def find_best(points: xr.Dataset, kind: str) -> tuple[xr.DataArray, str]:
    """Accuracy [trial] in percent at the settings that are best on validation samples, and those
    that several values were tried of; `*` marks the least and the most.
    """
    place = int(
        select_end_total(points, f"{kind}_validation_accuracy")
        .mean("trial")
        .fillna(0)
        .argmax("zip")
    )
    said = [dict(re.findall(r"(\w+)=([\d.e-]+)", str(one))) for one in points["algorithm"].values]
    for one, rate in zip(said, points["fine_tune_learning_rate"].values, strict=True):
        one |= {"fine_tuning": f"{rate:g}"} if kind == "tuned_own" else {}
    chosen = []
    for key, value in said[place].items():
        tried = sorted({float(one[key]) for one in said})
        mark = "*" if float(value) in (tried[0], tried[-1]) else ""
        chosen += [f"{SHORT.get(key, key)} {value}{mark}"] if len(tried) > 1 else []
    return 100 * select_end_total(points.isel(zip=place), f"{kind}_test_accuracy"), ", ".join(
        chosen
    )


def open_all(results: Path) -> xr.Dataset:
    """Open the points of the study and those beyond the ends of its settings as one."""
    parts = [open_result(results, f"personal_small_data{end}") for end in ENDS]
    return join_grids(parts, "zip")


def main() -> None:
    result = open_all(make_study_parser(__doc__).parse_args().results)
    names = [name_method(str(one)) for one in result["algorithm"].values]
    found, chosen, more, tried = {}, {}, {}, {}
    for name in dict.fromkeys(names):
        points = result.isel(zip=[i for i, one in enumerate(names) if one == name])
        own = bool(points["personal_own_test_accuracy"].notnull().any())
        for kind in ["personal_own"] if own else ["tuned_own", "own"]:
            found[name + KINDS[kind]], chosen[name + KINDS[kind]] = find_best(points, kind)
            tried[name + KINDS[kind]] = points.sizes["zip"]
        more |= {name: find_best(points, "tuned_own")[0]} if own else {}
    order = sorted(found, key=lambda name: -float(found[name].mean()))
    columns = ("accuracy, %", *(f"minus {one}" for one in BASES), "with 5 more steps")
    columns += ("settings", "chosen")
    print_head(
        f"Five steps a round; majority class {float(result['majority_accuracy'].mean()):.1%}",
        "model",
        *columns,
    )
    for name in order:
        pairs = (found[name], BASES[0]), (found[name], BASES[1]), (more.get(name), BASES[1])
        gains = (compute_gain(one, found[base]) for one, base in pairs if one is not None)
        cells = [f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in gains]
        print_row(
            name,
            f"{float(found[name].mean()):.2f}",
            *cells,
            *[""] * (3 - len(cells)),
            tried[name],
            chosen[name],
        )


if __name__ == "__main__":
    command(main)
