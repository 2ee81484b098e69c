"""Run one method in four places: a cell, a factory hall, a sensor network and a radio table.

`extends` names a preset, whose keys those of the scenario replace.
"""

import otafl
from otafl.core.presets import list_presets

method = {
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "model": {"name": "mlp", "hidden": [32]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
    "trials": 1,
}

for preset in list_presets():
    result = otafl.run({"name": preset, "extends": preset, **method}).isel(round=-1)
    accuracy, seconds = float(result.test_accuracy.mean()), float(result.airtime_s.mean())
    delivered = float(result.participants.mean())
    print(
        f"{preset:14s} accuracy {accuracy:.3f}, {delivered:4.1f} updates a round, "
        f"{1e3 * seconds:.0f} ms on the air"
    )
