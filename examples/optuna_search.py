"""Search two settings with Optuna, eight at a time.

Settings that change no tensor's shape are computed together, so a batch costs little more than
one of them.
"""

import optuna

import otafl
from otafl.results.end_values import select_end_total

optuna.logging.set_verbosity(optuna.logging.WARNING)
base = {
    "name": "search",
    "data": {"name": "digits", "partition": "dirichlet", "validation": 0.2},
    "model": {"name": "mlp", "hidden": [16]},
    "power": "tci",
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
    "trials": 2,
}
space = {
    "algorithm.learning_rate": optuna.distributions.FloatDistribution(0.01, 3, log=True),
    "power.threshold": optuna.distributions.FloatDistribution(0.01, 1, log=True),
}
sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)
study = optuna.create_study(direction="maximize", sampler=sampler)
for _ in range(3):
    asked = [study.ask(space) for _ in range(8)]
    result = otafl.run({**base, "sweep": {"zip": [trial.params for trial in asked]}})
    accuracies = select_end_total(result, "validation_accuracy").mean("trial")
    for trial, accuracy in zip(asked, accuracies.values, strict=True):
        study.tell(trial, float(accuracy))
print(f"best validation accuracy {study.best_value:.3f} with {study.best_params}")
