"""List every variable that a result can hold: units, what it is, dims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from otafl.losses.metrics import METRICS, Better

ROUNDS = ("trial", "round")
DEVICES = ("trial", "round", "device")
TRIALS = ("trial",)
LEVELS = ("trial", "round", "level")
CAUSES = ("trial", "round", "device", "cause")
EVENTS = ("trial", "event")
CLASSES = ("trial", "round", "device", "class")

SERVER = "server_"
"""What the names of variables begin with that have each server's own."""


@dataclass(frozen=True)
class Variable:
    """Describe a result variable: its units, what it is, and its dims after `point`.

    of_servers: how the value of a trial follows from those of its servers. better: which way it is
    better, None for a variable that describes and does not judge.
    """

    units: str
    long_name: str
    dims: tuple[str, ...] = ROUNDS
    of_servers: Literal["mean", "max"] = "mean"
    better: Better | None = None


SCORES = {
    "test": "test {} of the global model",
    "local_test": "mean test {} of the devices' local models",
    "personal_test": "mean test {} of the personal models",
    "mean_test": "test {} of the error-free projected mean of the local models",
    "own_test": "{} of the global model on devices' own test samples",
    "local_own_test": "{} of local models on their own test samples",
    "personal_own_test": "{} of personal models on their own test samples",
    "tuned_test": "mean test {} of fine-tuned models",
    "tuned_own_test": "{} of fine-tuned models on their own test samples",
    "validation": "validation {} of the global model",
    "own_validation": "{} of the global model on devices' own validation samples",
    "local_own_validation": "{} of local models on their own validation samples",
    "personal_own_validation": "{} of personal models on their own validation samples",
    "tuned_own_validation": "{} of fine-tuned models on their own validation samples",
}
"""Which models are tested on which samples: each has the metrics of the loss."""


VARIABLES: dict[str, Variable] = {
    f"{name}_{score}": Variable(metric.units, text.format(metric.noun), better=metric.better)
    for name, text in SCORES.items()
    for score, metric in METRICS.items()
}
DEVICE_SCORES = {
    "local_test": "test {} of the local model",
    "personal_test": "test {} of the personal model",
    "tuned_test": "test {} of the fine-tuned model",
    "own_test": "{} of the global model on own test samples",
    "local_own_test": "{} of the local model on own test samples",
    "personal_own_test": "{} of the personal model on own test samples",
    "tuned_own_test": "{} of the fine-tuned model on own test samples",
}
"""Which models are tested on which samples for each device: each has one metric of the loss."""

VARIABLES |= {
    f"device_{name}_{score}": Variable(
        metric.units, text.format(metric.noun), DEVICES, better=metric.better
    )
    for name, text in DEVICE_SCORES.items()
    for score, metric in METRICS.items()
    if score not in ("loss", "r2")
}
VARIABLES |= {
    f"level_test_{score}": Variable(
        metric.units, f"test {metric.noun} of the model of a size", LEVELS, better=metric.better
    )
    for score, metric in METRICS.items()
}
VARIABLES |= {
    "train_loss": Variable("nat", "training loss", better="lower"),
    "device_personal_class_loss": Variable(
        "nat", "test loss of the personal model on samples of a class", CLASSES, better="lower"
    ),
    "device_personal_own_class_loss": Variable(
        "nat", "loss of the personal model on own test samples of a class", CLASSES, better="lower"
    ),
    "device_own_class_samples": Variable(
        "1", "own test samples of a class", ("trial", "device", "class")
    ),
    "mean_control_mse": Variable(
        "1", "mean squared error of devices' mean training labels on own test samples", TRIALS
    ),
    "mean_control_r2": Variable(
        "1", "share of the variance that devices' mean training labels explain", TRIALS
    ),
    "line_control_mse": Variable(
        "1", "mean squared error of devices' lines in time on own test samples", TRIALS
    ),
    "line_control_r2": Variable(
        "1", "share of the variance that devices' lines in time explain", TRIALS
    ),
    "excess_risk": Variable(
        "1", "training objective of the global model over its minimum", better="lower"
    ),
    "minimum_risk": Variable("1", "minimum of the training objective", TRIALS),
    "majority_share": Variable(
        "1", "share of the test samples that are of the most frequent class", TRIALS
    ),
    "test_samples": Variable("1", "test samples", TRIALS),
    "own_test_samples": Variable("1", "test samples of all devices' own", TRIALS),
    "majority_accuracy": Variable(
        "1", "share of own test samples that are of their device's most frequent class", TRIALS
    ),
    "accuracy_guess": Variable(
        "1", "accuracy of a guess among the classes of the test samples", TRIALS
    ),
    "own_accuracy_guess": Variable(
        "1", "accuracy of a guess among the classes of each device's own test samples", TRIALS
    ),
    "mse_guess": Variable("1", "mean squared error of the mean label of the test samples", TRIALS),
    "perplexity_guess": Variable("1", "perplexity of equally likely tokens", TRIALS),
    "update_coherence": Variable("1", "generalised coherence of the devices' envelope gradients"),
    "update_coherence_log": Variable(
        "nat", "logarithm of the determinant of the envelope gradients' normalised Gram matrix"
    ),
    "gradients_per_step": Variable(
        "1", "gradient evaluations of a local step", TRIALS, better="lower"
    ),
    "level_participants": Variable("1", "devices that trained a model of this size", LEVELS),
    "level_parameters": Variable(
        "1", "parameters of the model of a size", ("trial", "level"), better="lower"
    ),
    "level_macs": Variable(
        "1", "multiplications of a forward pass of a sample", ("trial", "level"), better="lower"
    ),
    "exchanged_parameters": Variable(
        "1", "parameters sent down to and up from the participants so far", better="lower"
    ),
    "training_macs": Variable(
        "1",
        "multiplications of forward passes on the participants' minibatches so far",
        better="lower",
    ),
    "aggregation_nmse": Variable("1", "normalised squared aggregation error", better="lower"),
    "papr_db": Variable(
        "dB",
        "mean peak power of an OFDM symbol over its mean power before the amplifier, so far",
        better="lower",
    ),
    "evm": Variable(
        "1",
        "error vector magnitude behind devices' amplifiers, root mean square so far",
        better="lower",
    ),
    "weight_rank": Variable("1", "numerical rank of the global weights, mean over layers"),
    "weight_density": Variable("1", "share of the global weights that are not zero"),
    "product_error": Variable(
        "1",
        "squared error of the recovered low-rank weights, relative to the devices' mean",
        better="lower",
    ),
    "product_error_law": Variable("1", "expectation of product_error without noise and fading"),
    "truncation_gap": Variable(
        "1",
        "squared error of truncated weights, relative to the server's, mean over levels",
        better="lower",
    ),
    "consensus_gap": Variable(
        "1", "mean squared distance of the devices' weights from their mean, relative to it"
    ),
    "consensus_error": Variable(
        "1", "mean squared distance of the servers' models from their mean, relative to it"
    ),
    "prox_gap": Variable(
        "1", "mean distance of the personal models from the local ones, relative to the latter"
    ),
    "refactoring_error": Variable(
        "1",
        "relative distance of the devices' mean tensors from the factors made of them",
        better="lower",
    ),
    "dp_mu": Variable(
        "1",
        "mu of Gaussian differential privacy so far, of the device that it is largest for",
        of_servers="max",
        better="lower",
    ),
    "dp_epsilon": Variable(
        "1",
        "epsilon of differential privacy so far, at privacy.delta",
        of_servers="max",
        better="lower",
    ),
    "dp_limited": Variable(
        "1", "share of rounds so far in which the privacy bound limited powers", better="lower"
    ),
    "participants": Variable("1", "devices that were aggregated"),
    "crashed_updates": Variable(
        "1", "updates whose device crashed while it sent them, so far", better="lower"
    ),
    "rejected_updates": Variable(
        "1", "updates that were not sent as they were not finite, so far", better="lower"
    ),
    "duplicated_updates": Variable("1", "updates that were sent twice, so far", better="lower"),
    "uplink_symbols": Variable("symbol", "uplink channel uses so far", better="lower"),
    "uplink_bits": Variable("bit", "uplink payload so far", better="lower"),
    "side_symbols": Variable("symbol", "side-information channel uses so far", better="lower"),
    "downlink_bits": Variable("bit", "downlink payload so far", better="lower"),
    "tx_energy_j": Variable("J", "energy radiated so far", DEVICES, better="lower"),
    "compute_energy_j": Variable("J", "energy spent on computing so far", DEVICES, better="lower"),
    "device_energy_j": Variable(
        "J", "energy drawn by a device so far, by cause", CAUSES, better="lower"
    ),
    "charge_j": Variable("J", "charge of the battery, infinite on mains", DEVICES, better="higher"),
    "present": Variable("1", "devices that are there"),
    "updates_started": Variable("1", "updates that devices began to compute, so far"),
    "updates_lost": Variable("1", "updates that never got to a slot, so far", better="lower"),
    "updates_used": Variable("1", "updates that were aggregated, so far"),
    "backhaul_bits": Variable("bit", "sent and received over the backhaul so far", better="lower"),
    "airtime_s": Variable("s", "uplink airtime so far", better="lower"),
    "sim_time_s": Variable("s", "simulated time so far", better="lower"),
    "tx_power_w": Variable("W", "mean transmit power", DEVICES, better="lower"),
    "wall_time_s": Variable("s", "computing time of the whole stack so far", better="lower"),
    "timeline_device": Variable("1", "device of an event", EVENTS),
    "timeline_round": Variable("1", "round in which its update was started, -1: away", EVENTS),
    "timeline_activity": Variable("1", "what the device did", EVENTS),
    "timeline_start_s": Variable("s", "simulated time at which it began", EVENTS),
    "timeline_end_s": Variable("s", "simulated time at which it ended", EVENTS),
    "end_round": Variable(
        "round", "round at which a trial had no time or no devices left", TRIALS, better="higher"
    ),
    "stop_round": Variable(
        "round", "round at which the target was reached", TRIALS, better="lower"
    ),
    "stop_time_s": Variable(
        "s", "simulated time at which the target was reached", TRIALS, better="lower"
    ),
    "stop_energy_j": Variable(
        "J", "energy of all devices when the target was reached", TRIALS, better="lower"
    ),
    "stop_symbols": Variable(
        "symbol", "uplink channel uses when the target was reached", TRIALS, better="lower"
    ),
    "diverged_round": Variable("round", "round at which training diverged", TRIALS),
    "power_constraint": Variable(
        "1", "kind of the power budget: 0 no bound, 1 every round, 2 average over fading", TRIALS
    ),
    "start_bits": Variable(
        "bit",
        "bits of a broadcast of the start to all devices, not in downlink_bits",
        TRIALS,
        better="lower",
    ),
    "compression_actual": Variable(
        "1", "real uplink symbols of the weights over the dense weights", TRIALS, better="lower"
    ),
    "compression_nominal": Variable(
        "1", "uplink symbols over dense weights of the middle layer", TRIALS, better="lower"
    ),
}
"""Every variable a result can hold. Means (train_loss, aggregation_nmse, participants, tx_power_w)
are over the rounds since the previous record; symbols, bits, joules, seconds and updates accumulate
from round 0; end_round, stop_* and diverged_round are NaN where that never happened. A result has
those that its method gives. If a trial has several servers, variables without a
device dimension are averaged over them, and `server_<name>` has each server's own."""


def get_variable(name: str) -> Variable:
    """Describe a variable, be it each server's own. Raises KeyError for what no result holds."""
    whole = VARIABLES.get(name.removeprefix(SERVER))
    if whole is None or name in VARIABLES or whole.dims not in (ROUNDS, TRIALS):
        return VARIABLES[name]
    dims = (*whole.dims, "server")
    return Variable(whole.units, f"{whole.long_name}, each server", dims, better=whole.better)


def find_metric(name: str) -> str | None:
    """Return the metric of a variable, the last word of its name; None for other variables."""
    last = name.rpartition("_")[2]
    return last if last in METRICS and name.removeprefix(SERVER) in VARIABLES else None


def get_better_direction(name: str) -> Better | None:
    """Return whether a variable is better higher or lower.

    Accuracies and charges are better higher; losses, errors, joules, seconds, symbols, bits and
    work lower. None where neither is better, or where it is not known.
    """
    try:
        return get_variable(name).better
    except KeyError:
        return None


GUESSES = ("accuracy_guess", "own_accuracy_guess", "mse_guess", "perplexity_guess")
"""Metrics of a guess, which a trial that diverged counts with."""


def find_guess(name: str) -> str | None:
    """Return the variable of a guess for a metric; None for other variables.

    A model of a device guesses among its device's classes where it is tested on own samples.
    """
    metric = find_metric(name)
    if metric is None or not METRICS[metric].is_guess:
        return None
    own = f"own_{metric}_guess"
    of_device = re.search("(personal|local|tuned)_own_", name)
    return own if of_device and own in GUESSES else f"{metric}_guess"


CONTROLS = ("mean_control_mse", "mean_control_r2", "line_control_mse", "line_control_r2")
"""Predictions from a device's labels only, beside which its personal model is judged."""


ERRORS = ("excess_risk", "aggregation_nmse")
"""Variables beside the metrics that training lowers; others that are better lower add up."""


def falls_to_target(name: str) -> bool:
    """Return whether a variable reaches a target from above, as an error does."""
    metric = find_metric(name)
    return name.removeprefix(SERVER) in ERRORS or (
        metric is not None and METRICS[metric].better == "lower"
    )


def is_reached(name: str, values: Any, target: float) -> Any:
    """Return where a variable has reached a target, bool of the values' shape; NaN never has."""
    return values <= target if falls_to_target(name) else values >= target
