"""Record what ByzFL's rules and attacks return, for the tests that compare with it.

    pip install --no-deps byzfl
    python scripts/record_byzfl.py [tests/robust/byzfl.json]

ByzFL's dependencies are not needed: its rules and attacks use NumPy, SciPy and PyTorch only. Its
package would import torchvision, so this program imports the two modules without the package.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SIZES = {7: 1, 8: 2, 11: 3}
"""Number of inputs -> number f of corrupted ones."""
COORDINATES = 6
SEED = 800
"""Plus the number of inputs; Krum with f and with f + 1 then select different inputs."""
RADIUS, STEPS = 2.0, 3
"""Of centred clipping, and the bound of clipped norms."""
SCALE, DEVIATIONS = 1.5, 0.7
"""Of inner products and of a little is enough."""


def load_modules() -> tuple[Any, Any, Any]:
    """Import ByzFL's rules, pre-aggregations and attacks without the imports of its package."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("byzfl is not installed; use pip install --no-deps byzfl")
    package = ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package
    rules, before, attacks = (
        importlib.import_module(f"byzfl.{name}")
        for name in ("aggregators.aggregators", "aggregators.preaggregators", "attacks.attacks")
    )
    return rules, before, attacks


def draw_inputs(num_inputs: int, num_corrupted: int) -> np.ndarray:
    """Draw inputs [n, P], of which the first f are far from the others and from each other."""
    x = np.random.default_rng(SEED + num_inputs).standard_normal((num_inputs, COORDINATES))
    x[:num_corrupted] += 20.0 * np.arange(1, num_corrupted + 1)[:, None]
    return x.round(6)


def list_rules(rules: Any, before: Any, f: int) -> dict[str, Any]:
    """List ByzFL's rules by their names there; Krum also with f + 1."""
    clip, average = before.Clipping(RADIUS), rules.Average()
    return {
        "Average": average,
        "Median": rules.Median(),
        "TrMean": rules.TrMean(f),
        "GeometricMedian": rules.GeometricMedian(nu=1e-9, T=2000),
        "GeometricMedian by default": rules.GeometricMedian(),
        "Krum": rules.Krum(f),
        "Krum of f + 1": rules.Krum(f + 1),
        "MultiKrum": rules.MultiKrum(f),
        "CenteredClipping": rules.CenteredClipping(L=STEPS, tau=RADIUS),
        "Clipping and Average": lambda x: average(clip(x)),
    }


def list_attacks(attacks: Any) -> dict[str, Any]:
    """List ByzFL's attacks by their names there."""
    return {
        "SignFlipping": attacks.SignFlipping(),
        "InnerProductManipulation": attacks.InnerProductManipulation(tau=SCALE),
        "ALittleIsEnough": attacks.ALittleIsEnough(tau=DEVIATIONS),
        "Mimic": attacks.Mimic(epsilon=0),
    }


def record() -> Iterator[dict[str, Any]]:
    """Yield inputs, and what each rule and attack makes of a copy (clipping changes its inputs)."""
    rules, before, attacks = load_modules()
    for num_inputs, f in SIZES.items():
        x = draw_inputs(num_inputs, f)
        own, honest = list_rules(rules, before, f), x[f:]
        yield {
            "f": f,
            "inputs": x.tolist(),
            "rules": {name: np.asarray(rule(x.copy())).tolist() for name, rule in own.items()},
            "attacks": {
                name: np.asarray(attack(honest.copy())).tolist()
                for name, attack in list_attacks(attacks).items()
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=Path("tests/robust/byzfl.json"))
    path: Path = parser.parse_args().path
    found = {
        "byzfl": importlib.metadata.version("byzfl"),
        "radius": RADIUS,
        "steps": STEPS,
        "scale": SCALE,
        "deviations": DEVIATIONS,
        "cases": list(record()),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
