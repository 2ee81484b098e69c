"""Run a first scenario and read its result.

Ten devices train a small network over a Rayleigh channel. The result is an xarray data set, so
dimensions have names.
"""

import otafl

scenario = {
    "name": "first",
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "model": {"name": "mlp", "hidden": [32]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "channel": {"name": "rayleigh", "snr_db": -10},
    "power": "gbma",
    "devices": {"count": 10},
    "training": {"rounds": 40, "local_steps": 5, "batch_size": 20, "eval_every": 10},
    "trials": 3,
}

result = otafl.run(scenario)

print("test accuracy by round, mean over trials")
print(result.test_accuracy.mean("trial").to_pandas().round(3))

final = result.test_accuracy.isel(round=-1)
print(f"at the end: {float(final.mean()):.3f} ± {float(final.std('trial', ddof=1)):.3f}")

joules = result.tx_energy_j.isel(round=-1).sum("device").mean()
print(f"radiated by all devices: {float(joules):.4f} J")
