"""Faults of `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults_of import TOP, list_file_faults

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed", "--set seed: must be of the form key=value, like channel.snr_db=10"),
        ("=3", "--set =3: must be of the form key=value, like channel.snr_db=10"),
        ("seed=-1", "--set seed=-1: seed: got -1; must be greater than or equal to 0"),
        ("trials.x=3", "--set trials.x=3: 'trials' has no keys of its own"),
        ("seed.x=3", "--set seed.x=3: seed: got {'x': 3}; must be a whole number"),
        (
            "seed=[1",
            "--set seed=[1: bad YAML: while parsing a flow sequence: expected ',' or ']', but got "
            "'<stream end>'",
        ),
        (
            "power.treshold=1",
            "--set power.treshold=1: power.treshold: unknown key; did you mean 'threshold'? (known "
            "keys: name, threshold, relative, reference, count_policy_power, constraint, gamma)",
        ),
        ("zz.y=1", f"--set zz.y=1: zz: unknown key {TOP}"),
        (
            "channel.snr_db=2",
            "--set channel.snr_db=2: this key is swept; say sweep.channel.snr_db=[...], or "
            "sweep={} for no sweep",
        ),
    ],
)
def test_an_override(tmp_path: Path, override: str, said: str) -> None:
    text = "name: x\ntrials: 2\npower: tci\nsweep: {channel.snr_db: [1, 2]}\n"
    assert list_file_faults(tmp_path, text, override) == [said]


def test_a_fault_of_the_file_is_not_laid_to_an_override(tmp_path: Path) -> None:
    text = "name: x\ndevices:\n  count: 0\n"
    assert list_file_faults(tmp_path, text, "devices.participants=1", "seed=x") == [
        "quickstart.yaml:3:3: devices.count: got 0; must be greater than or equal to 1",
        "--set seed=x: seed: got 'x'; must be a whole number",
    ]
