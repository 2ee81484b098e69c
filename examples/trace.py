"""Run over channels of a file: random ones, in place of your measurements.

Channels have the shape (rounds, devices, antennas, groups of sub-carriers). The bandwidth that the
groups cover stands beside them in the file.
"""

import tempfile
from pathlib import Path

import numpy as np

import otafl

folder = Path(tempfile.mkdtemp())
generator = np.random.default_rng(0)
shape = (50, 8, 2, 4)
measured = (generator.normal(size=shape) + 1j * generator.normal(size=shape)) / np.sqrt(2)
measured *= np.linspace(0.5, 1.5, 8)[:, None, None]  # near and far devices
np.savez(folder / "measured.npz", h=measured, bandwidth_hz=1e6)

scenario = {
    "name": "trace",
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "model": {"name": "mlp", "hidden": [32]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "channel": {"name": "trace", "path": str(folder / "measured.npz"), "snr_db": -5},
    "devices": {"count": 8},
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
    "trials": 2,
    "sweep": {"power": ["ci", {"name": "tci", "constraint": "peak"}, "gbma"]},
}
print(otafl.run(scenario).test_accuracy.isel(round=-1).mean("trial").to_pandas().round(3))
