"""Compare a common model with personal ones, on devices with different digits.

`test_accuracy` tests the server's model on all digits, `personal_own_test_accuracy` the devices'
models on their own digits.
"""

import otafl

scenario = {
    "name": "personalised",
    "data": {
        "name": "digits",
        "partition": {"name": "label_skew", "classes_per_device": 2},
        "own_test": True,
    },
    "model": {"name": "mlp", "hidden": [32]},
    "channel": {"name": "rayleigh", "snr_db": 0},
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
    "trials": 2,
    "sweep": {
        "algorithm": [
            {"name": "fedavg", "learning_rate": 0.2},
            {"name": "ditto", "learning_rate": 0.2, "personal_learning_rate": 0.2},
            {"name": "apfl", "learning_rate": 0.2},
            {"name": "fedrep", "learning_rate": 0.2},
        ]
    },
}

result = otafl.run(scenario).isel(round=-1).mean("trial")
print("          common  personal   (nan: the method has no such model)")
for name in result.algorithm.values:
    one = result.sel(algorithm=name)
    shared, own = float(one.test_accuracy), float(one.personal_own_test_accuracy.mean())
    print(f"{name.partition('(')[0]:8s}{shared:8.3f}{own:10.3f}")
