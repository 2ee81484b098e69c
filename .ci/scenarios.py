"""Runs every scenario for two rounds, with all that it names and the first of the numbers that it
sweeps, through the command line, two at a time: children of a program that has loaded what they
need.

    python .ci/scenarios.py
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.backends.backend_agg  # noqa: F401
import sionna.phy  # noqa: F401
import torch
import yaml

import otafl.engine.engine  # noqa: F401
from otafl import cli, report  # noqa: F401

SETTINGS = {
    "training.rounds": 2,
    "training.eval_every": 2,
    "training.eval_samples": 200,
    "training.cross_test": "false",
    "trials": 1,
}


def reduced(text: str) -> dict[str, Any]:
    """A scenario without the axes that are set here, and of values that differ in numbers alone the
    first."""
    tree: dict[str, Any] = yaml.safe_load(text)
    axes = tree.get("sweep", {})
    for key in [key for key in axes if key in SETTINGS]:
        del axes[key]
    for key, values in axes.items():
        if key == "zip":
            values = [{k: v for k, v in one.items() if k not in SETTINGS} for one in values]
        first = {json.dumps(without_numbers(value)): value for value in reversed(values)}
        axes[key] = list(reversed(first.values()))
    return tree


def without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_numbers(one) for one in value]
    return value if isinstance(value, str | bool) or value is None else 0


def two_rounds(scenario: Path) -> str:
    """What went wrong; nothing where all went well."""
    text = scenario.read_text()
    if "fashion_mnist" in text and not os.environ.get("OTAFL_DATA_DIR"):
        return f"skipped, no data here: {scenario}"
    settings = dict(SETTINGS)
    if "training.local_steps:" not in text:
        settings["training.local_steps"] = 2
    torch.set_num_threads(1)
    changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / scenario.name, f"{folder}/result.nc"
        file.write_text(yaml.safe_dump(reduced(text), sort_keys=False))
        commands = [["run", str(file), "--quiet", "--out", out, *changes], ["show", out]]
        for command in commands:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                try:
                    cli.main(command)
                except SystemExit as ended:
                    if ended.code:
                        return f"failed: otafl {' '.join(command)}\n{said.getvalue()}"
    return ""


def main() -> None:
    files = sorted(Path("scenarios").rglob("*.yaml"))
    failed = False
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        for file, said in zip(files, pool.imap(two_rounds, files), strict=True):
            print(f"+ {file}, two rounds", said, flush=True)
            failed |= said.startswith("failed")
    sys.exit(failed)


if __name__ == "__main__":
    main()
