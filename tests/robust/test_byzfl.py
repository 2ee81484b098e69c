"""Rules and attacks beside what ByzFL returns for the same inputs, recorded in byzfl.json.

`scripts/record_byzfl.py` makes the file, and is run again where ByzFL is installed. Conventions
that differ:

- Krum of Blanchard et al. adds the n - f - 2 smallest distances to others, ByzFL n - f - 1 of them.
  So ours with f is ByzFL's with f + 1. Multi-Krum averages n - f inputs in both.
- ByzFL's geometric median takes 3 steps by default with an absolute smoothing of 0.1; with many
  steps and little smoothing it is ours, whose smoothing is relative to the median distance.
- ByzFL's clipping starts at zero and has a radius of 100 by default. Ours starts at the last
  aggregate and takes the median distance as radius.
- ByzFL takes f itself, this package a share of the inputs. ByzFL's trimmed mean drops f inputs at
  each end too.
- ByzFL's A Little Is Enough adds z deviations, ours subtracts them. z is 1.5 by default there, and
  by the paper's rule here.
- Inner products have the factor 2 by default there, and `faults.scale` here.
- ByzFL's sign flip flips the mean of the honest updates, ours each attacker's own.
- ByzFL's Mimic copies the honest device that it is given, ours the first.

The median of an even number of inputs is the mean of the two in the middle in both.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otafl.core import registry
from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams
from otafl.devices.faults import Faults
from otafl.robust.base import Inputs, Rule

pytestmark = pytest.mark.exact

ROOT = Path(__file__).parents[2]
PATH = Path(__file__).parent / "byzfl.json"
RECORD: dict[str, Any] = json.loads(PATH.read_text())
CASES: list[dict[str, Any]] = RECORD["cases"]
RADIUS = {"radius": RECORD["radius"], "steps": RECORD["steps"]}

# examples: the rules that ByzFL has too
RULES: list[tuple[str, str, dict[str, Any]]] = [
    ("Average", "mean", {}),
    ("Median", "coordinate_median", {}),
    ("TrMean", "trimmed_mean", {}),
    ("GeometricMedian", "geometric_median", {}),
    ("Krum of f + 1", "krum", {}),
    ("MultiKrum", "multi_krum", {}),
    ("CenteredClipping", "centred_clipping", RADIUS),
    ("Clipping and Average", "norm_bound", {"bound": RECORD["radius"]}),
]

# examples: the attacks that ByzFL has too
ATTACKS: list[tuple[str, dict[str, Any], float]] = [
    ("SignFlipping", {"name": "inner_product"}, 1.0),
    ("InnerProductManipulation", {"name": "inner_product"}, RECORD["scale"]),
    ("Mimic", {"name": "mimic"}, 1.0),
]


def aggregate(case: dict[str, Any], name: str, **keys: Any) -> np.ndarray:
    """Aggregate the inputs of a case by a rule."""
    kind: Any = registry.load_settings_class("rule", name)
    rule: Rule = kind(**keys)
    x = torch.tensor(case["inputs"], dtype=torch.float64)[None]
    inputs = Inputs(x, torch.full_like(x[..., :1], 1 / x.shape[1]), torch.tensor([case["f"]]))
    return rule.aggregate(inputs, rule.init(torch.zeros_like(x[:, 0])))[0][0].numpy()


def attack(case: dict[str, Any], name: dict[str, Any], scale: float) -> np.ndarray:
    """Return what the first attacker of a case sends."""
    x = torch.tensor(case["inputs"], dtype=torch.float64)
    index = torch.arange(len(x))
    weight = torch.full((len(x),), 1.0 / len(x), dtype=torch.float64)
    cohort = Cohort.create(torch.zeros_like(index), index, weight, (len(x),), len(x))
    section = Faults.Settings(attack=name, byzantine=case["f"], scale=scale)
    faults = Faults([section], Streams([4], [0], dtype=torch.float64))
    (sent,) = faults.tamper((Group({"x": x}),), cohort, 0)
    return sent.tensors["x"][0].numpy()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={len(case['inputs'])}")
@pytest.mark.parametrize(("theirs", "own", "keys"), RULES, ids=[own for _, own, _ in RULES])
def test_a_rule_is_byzfl_s(
    theirs: str, own: str, keys: dict[str, Any], case: dict[str, Any]
) -> None:
    found = aggregate(case, own, **keys)
    np.testing.assert_allclose(found, case["rules"][theirs], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={len(case['inputs'])}")
@pytest.mark.parametrize(("theirs", "own", "scale"), ATTACKS, ids=[name for name, _, _ in ATTACKS])
def test_an_attack_is_byzfl_s(
    theirs: str, own: dict[str, Any], scale: float, case: dict[str, Any]
) -> None:
    np.testing.assert_allclose(attack(case, own, scale), case["attacks"][theirs], rtol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={len(case['inputs'])}")
def test_the_shift_of_a_little_is_enough_is_byzfl_s_with_the_other_sign(
    case: dict[str, Any],
) -> None:
    name = {"name": "a_little_is_enough", "deviations": RECORD["deviations"]}
    honest = np.asarray(case["inputs"])[case["f"] :]
    expected = 2.0 * honest.mean(0) - np.asarray(case["attacks"]["ALittleIsEnough"])
    np.testing.assert_allclose(attack(case, name, 1.0), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("byzfl") is None, reason="needs byzfl")
def test_the_script_records_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "byzfl.json"
    subprocess.run([sys.executable, str(ROOT / "scripts/record_byzfl.py"), str(path)], check=True)
    fresh = json.loads(path.read_text())
    for one, other in zip(CASES, fresh["cases"], strict=True):
        np.testing.assert_allclose(other["inputs"], one["inputs"], rtol=1e-9)
        for table in ("rules", "attacks"):
            for name, value in one[table].items():
                np.testing.assert_allclose(other[table][name], value, rtol=1e-9, err_msg=name)
