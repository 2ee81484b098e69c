"""Saves what every scenario and every component computes, and compares two such collections.

    python scripts/reference.py save FOLDER [--cases OTHER/cases.json] [--only TEXT]
    python scripts/reference.py compare FOLDER OTHER [--tolerance 1e-5] [--only-numbers]

A collection has a case for every scenario at two rounds, for every method over
every transport, every component and every choice of its settings that the JSON schema lists, over
small data. Kept are results with links, timelines and models, or the message of the error; and for
every case the scenario filled in, its hash and which points share a stack. A change of the code
that is to change no number is held to this: save before and after it on one machine, then compare.
A tolerance is relative to the largest value of a variable. With --only-numbers neither hashes, nor
scenarios, shared stacks, attributes and the text of messages count: only values, and which cases
end in an error.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parents[1]
SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "train_samples": 300, "partition": {"name": "dirichlet"}},
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 5},
    "training": {"rounds": 2, "batch_size": 4, "local_steps": 2, "eval_every": 1},
    "trials": 2,
    "seed": 7,
    "engine": {"device": "cpu"},
    "output": {"save_link": True, "save_timeline": True, "save_models": True},
}
TWO_ROUNDS = {
    "training.rounds": 2,
    "training.eval_every": 1,
    "training.eval_samples": 200,
    "training.cross_test": "false",
    "trials": 1,
    "engine.device": "cpu",
}
NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    ("codec", "matrix_sensing"): {"rows": 2},
    ("devices.compute", "classes"): {"classes": [1e9, 4e9, 8e9]},
    ("devices.compute", "drawn"): {"flops_per_s": {"uniform": [1e9, 2e9]}},
    ("devices.capacity_levels", "deadline"): {"seconds": 1e-5},
    ("devices.capacity_levels", "memory"): {"memory_mb": [0.01, 0.02], "shares": [0.5, 0.5]},
    ("devices.capacity_levels", "channel"): {"min_snr_db": [10.0]},
    ("algorithm", "fedbuff"): {"buffer": 2},
    ("algorithm", "tdpfed"): {"factor_steps": 3, "solver_steps": 2},
    ("model", "cnn"): {"channels": [2, 3], "kernel": 3, "hidden": [4]},
    ("model", "vgg8"): {"channels": [2, 3], "hidden": [4]},
    ("model", "lstm"): {"hidden": 3, "classifier": [4]},
    ("model", "conv_net"): {"channels": [2, 3], "hidden": [4]},
    ("model", "resnet"): {"blocks": [1, 1], "channels": [2, 3]},
    ("model", "resnet18"): {"blocks": [2, 1], "channels": [2, 3]},
    ("model", "resnet34"): {"blocks": [1, 1, 1], "channels": [2, 3, 2], "norm": "none"},
    ("model", "vgg"): {"blocks": [1, 2], "channels": [2, 3]},
    ("model", "vgg11"): {"blocks": [1, 1], "channels": [2, 3], "norm": "none"},
    ("model", "vgg16"): {"blocks": [2, 1], "channels": [4, 2], "norm": "group"},
}
"""What a component must be told beside its name, or is told to be small."""
WITH: dict[str, dict[str, Any]] = {
    "algorithm": {"transport": "ideal"},
    "algorithm.fedbn": {"model": {"name": "resnet", "blocks": [1, 1], "channels": [2, 3]}},
    "algorithm.fedrlr": {"model": {"name": "mlp", "hidden": [16, 12]}},
    "algorithm.fedrlr_plus": {"model": {"name": "mlp", "hidden": [16, 12]}},
    "algorithm.fedhm": {"model": {"name": "resnet", "blocks": [1, 1], "channels": [4, 8]}},
    "channel.rayleigh": {"receiver": "eigen"},
    "codec.matrix_sensing": {"algorithm": {"name": "fedavg", "sends": "model"}},
    "devices.cpu_frequency": {
        "devices.deadline_s": 1e-5,
        "devices.compute": {"name": "phone", "frequency_min_share": 0.3},
        "transport": {"name": "digital", "constraint": "peak"},
    },
    "devices.capacity_levels": {"algorithm": "heterofl", "model": {"name": "mlp", "hidden": [8]}},
    "devices.late": {"devices.deadline_s": 1e-5},
    "devices.protocol": {"devices.compute": "lognormal"},
    "faults": {"faults.byzantine": 2},
    "faults.attack": {"faults.byzantine": 2},
    "robust.rule": {"robust.groups": "devices", "robust.assumed_share": 0.25},
    "faults.jammer_db": {},
}
"""What else is in the scenario of a case of this section or component."""
ENVIRONMENT = ("wall_time_s",)


def build_cases() -> dict[str, dict[str, Any]]:
    """Name of a case -> a scenario's keys, or {"file": ..., "set": [...]}."""
    from otafl.cli.new import list_shipped

    out: dict[str, dict[str, Any]] = {}
    for file in list_shipped().values():
        changes = dict(TWO_ROUNDS)
        if "training.local_steps:" not in file.read_text():
            changes["training.local_steps"] = 2
        settings = [f"{key}={value}" for key, value in changes.items()]
        out[f"scenario.{file.stem}"] = {"file": str(file.relative_to(ROOT)), "set": settings}
    out |= {name: change_keys(keys) for name, keys in _iterate_schema_cases()}
    return out


def change_keys(keys: dict[str, Any]) -> dict[str, Any]:
    """SMALL with some dotted keys replaced."""
    tree: dict[str, Any] = json.loads(json.dumps(SMALL))
    for key, value in keys.items():
        *path, last = key.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def _iterate_schema_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Cases from the choices that the JSON schema lists."""
    from otafl.scenario import build_json_schema

    schema = build_json_schema()
    chosen = dict(_iterate_choices(schema))
    transports = chosen["transport"]
    for section, names in chosen.items():
        for name, fields in names.items():
            own = {"name": name, **NEEDED.get((section, name), {})}
            if section == "channel" and ":" not in name and "subcarrier_groups" in fields:
                own["subcarrier_groups"] = 3
            for label, changes in [("", {}), *_iterate_alternatives(fields, schema["$defs"])]:
                others = WITH.get(section, {}) | WITH.get(f"{section}.{name}", {})
                yield f"{section}.{name}{label}", others | {section: own | changes}
    for method, transport in itertools.product(chosen["algorithm"], transports):
        own = {"name": method, **NEEDED.get(("algorithm", method), {})}
        yield f"method.{method}.{transport}", {"algorithm": own, "transport": transport}
    for pair in itertools.product(chosen["power"], ("awgn", "rician", "tdl-a", "umi")):
        groups = {"subcarrier_groups": 3} if "-" in pair[1] or pair[1] == "umi" else {}
        yield (
            f"link.{pair[0]}.{pair[1]}",
            {"power": pair[0], "channel": {"name": pair[1], "antennas": 2, **groups}},
        )
    sections = {"impairments", "faults", "signalling", "devices", "training"}
    for section in sorted(sections):
        fields = _get_fields(schema["properties"][section], schema["$defs"])
        for label, changes in _iterate_alternatives(fields, schema["$defs"]):
            own = {f"{section}.{key}": value for key, value in changes.items()}
            others = WITH.get(section, {}) | WITH.get(next(iter(own)), {})
            yield f"{section}{label}", others | own


def _iterate_choices(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Section -> name of a component -> its fields in the schema."""
    definitions = schema["$defs"]
    holders = {"": schema["properties"]}
    holders["devices."] = _get_fields(schema["properties"]["devices"], definitions)
    kinds = schema["properties"]["data"]["anyOf"][-1]["oneOf"]
    holders["data."] = next(
        fields for one in kinds if "partition" in (fields := _get_fields(one, definitions))
    )
    for prefix, holder in holders.items():
        for name, field in holder.items():
            named = next((one["oneOf"] for one in field.get("anyOf", ()) if "oneOf" in one), None)
            if named is None:
                continue
            table = {}
            for kind in (_get_fields(one, definitions) for one in named):
                known = kind["name"].get("const") or kind["name"].get("enum")
                for one in [known] if isinstance(known, str) else known or ():
                    table[one] = kind
            yield f"{prefix}{name}", table


def _get_fields(section: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in section:
        section = definitions[section["$ref"].rpartition("/")[2]]
    return section["properties"]


def _iterate_alternatives(
    fields: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value of a choice other than its default, and a number other than a default number."""
    for name, field in fields.items():
        if name == "name":
            continue
        kinds = [field, *field.get("anyOf", ())]
        default = field.get("default")
        values: list[Any] = [one for kind in kinds for one in kind.get("enum", ())]
        if any(kind.get("type") == "boolean" for kind in kinds):
            values += [True, False]
        numbers = [kind for kind in kinds if kind.get("type") in ("integer", "number")]
        if numbers and not isinstance(default, (str, list, dict)):
            values.append(_choose_other(default, numbers[0]))
        for value in values:
            if value != default:
                yield f".{name}={value}", {name: value}


def _choose_other(default: Any, kind: dict[str, Any]) -> float:
    """A number near the default that the bounds allow."""
    low = kind.get("minimum", kind.get("exclusiveMinimum"))
    high = kind.get("maximum", kind.get("exclusiveMaximum"))
    start = default if isinstance(default, (int, float)) else (1 if low is None else low)
    wanted = start + 1 if kind["type"] == "integer" else start * 0.7 + (start == 0) * 0.3
    if high is not None and wanted >= high:
        wanted = high if "maximum" in kind else 0.9 * high
    if low is not None and wanted <= low:
        wanted = low + 1 if kind["type"] == "integer" else low + 0.5
    return int(wanted) if kind["type"] == "integer" else wanted


def save_case(folder: Path, name: str, case: dict[str, Any]) -> str:
    """Computes a case into `folder`; returns the error's message, or nothing."""
    import torch

    import otafl
    import otafl.scenario as scenarios

    torch.set_num_threads(1)
    os.chdir(ROOT)
    target = folder / "results" / f"{name}.nc"
    kept: dict[str, Any] = {}
    try:
        if "file" in case:
            loaded = scenarios.load_scenario(Path(case["file"]), case["set"])
        else:
            loaded = scenarios.load_scenario(case)
        points = scenarios.expand(loaded)
        keys = [scenarios.make_stack_key(point.scenario) for point in points]
        kept["yaml"] = scenarios.to_yaml(loaded)
        kept["hash"] = scenarios.compute_scenario_hash(loaded)
        kept["stacks"] = [keys.index(key) for key in keys]
        target.unlink(missing_ok=True)
        otafl.run(loaded, target)
    except otafl.UserError as error:
        kept["error"] = str(error)
    except Exception as error:
        kept["error"] = f"{type(error).__name__}: {error}"
    text = json.dumps(kept, indent=1).replace(str(folder), "FOLDER")
    (folder / "about" / f"{name}.json").write_text(text)
    return kept.get("error", "")


def save(folder: Path, listed: Path | None, only: str) -> None:
    for part in ("results", "about"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    todo = build_cases() if listed is None else json.loads(listed.read_text())
    (folder / "cases.json").write_text(json.dumps(todo, indent=1))
    todo = {name: case for name, case in todo.items() if only in name}
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        runs = {name: pool.submit(save_case, folder, name, case) for name, case in todo.items()}
        for number, (name, run) in enumerate(runs.items(), 1):
            message = run.result().partition("\n")[0]
            print(f"{number}/{len(runs)} {name} {message[:100]}", flush=True)


@dataclass(frozen=True)
class Comparison:
    """What counts as a difference.

    Parameters
    ----------
    tolerance : float
        Largest difference of a variable's values, relative to the largest of them.
    only_numbers : bool
        Whether only values count, and which cases end in an error.
    """

    tolerance: float = 0.0
    only_numbers: bool = False

    def is_same_array(self, first: Any, second: Any) -> bool:
        """Whether two NumPy arrays have the same shape, the same gaps and close values."""
        import numpy as np

        if first.shape != second.shape:
            return False
        if not first.size or first.dtype.kind not in "fc" or second.dtype.kind not in "fc":
            return bool((first == second).all())
        finite = np.isfinite(first)
        if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
            return False
        largest = abs(first[finite]).max(initial=0.0)
        return bool((abs(first[finite] - second[finite]) <= self.tolerance * largest).all())

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether plain data with tensors are the same."""
        import torch

        if isinstance(one, torch.Tensor):
            return one.dtype == other.dtype and self.is_same_array(one.numpy(), other.numpy())
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(self.is_same(one[k], other[k]) for k in one)
        if isinstance(one, (list, tuple)):
            return len(one) == len(other) and all(map(self.is_same, one, other))
        return bool(one == other)


def find_differences(
    one: Path, other: Path, only: str = "", comparison: Comparison = Comparison()
) -> Iterator[str]:
    """A line for everything that differs between two collections."""
    found = [(folder / "about").glob("*.json") for folder in (one, other)]
    names = [{path.stem: path for path in paths if only in path.stem} for paths in found]
    for name in names[0].keys() ^ names[1].keys():
        yield f"{name}: in one collection alone"
    hashes: dict[str, tuple[str | None, str | None]] = {}
    for name in names[0].keys() & names[1].keys():
        first, second = (json.loads(by_name[name].read_text()) for by_name in names)
        if comparison.only_numbers:
            first, second = ({"error": ""} if "error" in about else {} for about in (first, second))
        hashes[name] = (first.get("hash"), second.get("hash"))
        if first.get("hash") != second.get("hash") and _hash_scenario(first) == second.get("hash"):
            first["hash"] = second["hash"]  # reckoned differently, and recognised
        for key in first.keys() | second.keys():
            if first.get(key) != second.get(key):
                yield f"{name}: {key}: {first.get(key)!r} | {second.get(key)!r}"
        if "error" not in first and "error" not in second:
            lines = _compare_results(one, other, name, comparison)
            yield from (f"{name}: {line}" for line in lines)
    if not comparison.only_numbers:
        yield from _find_equal_hashes(hashes)


def _find_equal_hashes(hashes: dict[str, tuple[str | None, str | None]]) -> Iterator[str]:
    """Say where scenarios with two hashes in one collection have one in the other."""
    for this in (0, 1):
        partners: dict[str | None, dict[str | None, str]] = {}
        for name, pair in hashes.items():
            partners.setdefault(pair[this], {}).setdefault(pair[1 - this], name)
        for others in partners.values():
            if len(others) > 1:
                yield f"{', '.join(others.values())}: one hash in collection {this + 1} alone"


def _hash_scenario(about: dict[str, Any]) -> str:
    """What this version makes of a scenario that another has written."""
    from otafl.scenario import compute_scenario_hash, load_scenario
    from otafl.scenario.yaml_source import parse

    with contextlib.suppress(Exception):
        return compute_scenario_hash(load_scenario(parse(about["yaml"]).data))
    return ""


def _compare_results(one: Path, other: Path, name: str, comparison: Comparison) -> Iterator[str]:
    import torch
    import xarray as xr

    files = [folder / "results" / f"{name}.nc" for folder in (one, other)]
    with xr.open_dataset(files[0]) as first, xr.open_dataset(files[1]) as second:
        for key in sorted(map(str, first.variables.keys() | second.variables.keys())):
            if key in ENVIRONMENT:
                continue
            if key not in first.variables or key not in second.variables:
                yield f"{key}: in one alone"
            elif not (
                first[key].dims == second[key].dims
                and comparison.is_same_array(first[key].values, second[key].values)
                and (comparison.only_numbers or first[key].attrs == second[key].attrs)
            ):
                yield f"{key}: {_format_largest(first[key], second[key])}"
        if first.attrs["complete"] != second.attrs["complete"]:
            yield "complete"
    models = [
        [
            torch.load(path, weights_only=True)["views"]
            for path in sorted(file.with_suffix(".models").glob("*.pt"))
        ]
        for file in files
    ]
    if not comparison.is_same(*models):
        yield "models"


def _format_largest(first: Any, second: Any) -> str:
    if first.dims != second.dims or first.shape != second.shape:
        return f"{first.dims} {first.shape} | {second.dims} {second.shape}"
    if first.dtype.kind in "fc":
        return f"largest difference {float(abs(first - second).max())}"
    return "values or attributes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("save", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--cases", type=Path, help="a collection's cases.json, for the same cases")
    parser.add_argument("--only", default="", help="cases whose names have this text")
    parser.add_argument("--tolerance", type=float, default=0.0, help="of a variable's largest")
    parser.add_argument("--only-numbers", action="store_true", help="compare values alone")
    given = parser.parse_args()
    if given.command == "save":
        save(given.folders[0].resolve(), given.cases, given.only)
        return
    comparison = Comparison(given.tolerance, given.only_numbers)
    found = list(find_differences(*given.folders, given.only, comparison))
    print(*sorted(found), sep="\n")
    print(f"{len(found)} differences")
    with contextlib.suppress(BrokenPipeError):
        sys.exit(bool(found))


if __name__ == "__main__":
    main()
