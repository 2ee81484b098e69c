"""Test whether two power policies differ, over pairs of trials.

Both policies have the same data split, fading and noise in a trial, so their difference varies
less than either of them.
"""

import otafl

scenario = {
    "name": "paired",
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
    "trials": 8,
    "sweep": {
        "channel.snr_db": [-30, -20, 0],
        "power": ["gbma", {"name": "tci", "constraint": "peak"}, "ci"],
    },
}

result = otafl.run(scenario)
tests = otafl.compare_pairs(result, axis="power", baseline="gbma")

print("difference in test accuracy to gbma, 95 % interval, and p after Holm's correction")
for snr_db in tests.snr_db.values:
    for power in tests.power.values:
        one = tests.sel(snr_db=snr_db, power=power)
        print(
            f"{snr_db:4.0f} dB  {power:20s}  {float(one.difference):+.3f}"
            f"  [{float(one.low):+.3f}, {float(one.high):+.3f}]  p = {float(one.p_holm):.2g}"
        )
