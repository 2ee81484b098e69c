"""List every variable that a result can hold: units, what it is, dims."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from otafl.losses.metrics import METRICS, Better

ROUNDS = ("trial", "round")
DEVICES = ("trial", "round", "device")
TRIALS = ("trial",)
LEVELS = ("trial", "round", "level")

_DIRECTIONS: dict[str, Better | None] = {"lower": "lower", "higher": "higher", "-": None}

SERVER = "server_"
"""What the names of variables begin with that have each server's own."""


@dataclass(frozen=True)
class Variable:
    """Describe a result variable: its units, what it is, and its dims after `point`.

    better: which way it is better, None for a variable that describes and does not judge.
    """

    units: str
    long_name: str
    dims: tuple[str, ...] = ROUNDS
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
_TABLE = """\
trial, round:
train_loss | nat | lower | training loss
excess_risk | 1 | lower | training objective of the global model over its minimum
update_coherence | 1 | - | generalised coherence of the devices' envelope gradients
update_coherence_log | nat | - | logarithm of the determinant of the envelope gradients'
    normalised Gram matrix
exchanged_parameters | 1 | lower | parameters sent down to and up from the participants so far
training_macs | 1 | lower | multiplications of forward passes on the participants' minibatches
    so far
aggregation_nmse | 1 | lower | normalised squared aggregation error
papr_db | dB | lower | mean peak power of an OFDM symbol over its mean power before the
    amplifier, so far
evm | 1 | lower | error vector magnitude behind devices' amplifiers, root mean square so far
weight_rank | 1 | - | numerical rank of the global weights, mean over layers
weight_density | 1 | - | share of the global weights that are not zero
product_error | 1 | lower | squared error of the recovered low-rank weights, relative to the
    devices' mean
product_error_law | 1 | - | expectation of product_error without noise and fading
truncation_gap | 1 | lower | squared error of truncated weights, relative to the server's, mean
    over levels
consensus_gap | 1 | - | mean squared distance of the devices' weights from their mean, relative
    to it
consensus_error | 1 | - | mean squared distance of the servers' models from their mean, relative
    to it
prox_gap | 1 | - | mean distance of the personal models from the local ones, relative to the
    latter
refactoring_error | 1 | lower | relative distance of the devices' mean tensors from the factors
    made of them
dp_mu | 1 | lower | mu of Gaussian differential privacy so far, of the device that it is largest
    for
dp_epsilon | 1 | lower | epsilon of differential privacy so far, at privacy.delta
dp_limited | 1 | lower | share of rounds so far in which the privacy bound limited powers
participants | 1 | - | devices that were aggregated
crashed_updates | 1 | lower | updates whose device crashed while it sent them, so far
rejected_updates | 1 | lower | updates that were not sent as they were not finite, so far
duplicated_updates | 1 | lower | updates that were sent twice, so far
uplink_symbols | symbol | lower | uplink channel uses so far
uplink_bits | bit | lower | uplink payload so far
side_symbols | symbol | lower | side-information channel uses so far
downlink_bits | bit | lower | downlink payload so far
present | 1 | - | devices that are there
updates_started | 1 | - | updates that devices began to compute, so far
updates_lost | 1 | lower | updates that never got to a slot, so far
updates_used | 1 | - | updates that were aggregated, so far
backhaul_bits | bit | lower | sent and received over the backhaul so far
airtime_s | s | lower | uplink airtime so far
sim_time_s | s | lower | simulated time so far
wall_time_s | s | lower | computing time of the whole stack so far
trial, round, device, class:
device_personal_class_loss | nat | lower | test loss of the personal model on samples of a class
device_personal_own_class_loss | nat | lower | loss of the personal model on own test samples of
    a class
trial, device, class:
device_own_class_samples | 1 | - | own test samples of a class
trial:
minimum_risk | 1 | - | minimum of the training objective
majority_share | 1 | - | share of the test samples that are of the most frequent class
test_samples | 1 | - | test samples
own_test_samples | 1 | - | test samples of all devices' own
majority_accuracy | 1 | - | share of own test samples that are of their device's most frequent
    class
accuracy_guess | 1 | - | accuracy of a guess among the classes of the test samples
own_accuracy_guess | 1 | - | accuracy of a guess among the classes of each device's own test
    samples
mse_guess | 1 | - | mean squared error of the mean label of the test samples
perplexity_guess | 1 | - | perplexity of equally likely tokens
gradients_per_step | 1 | lower | gradient evaluations of a local step
end_round | round | higher | round at which a trial had no time or no devices left
stop_round | round | lower | round at which the target was reached
diverged_round | round | - | round at which training diverged
power_constraint | 1 | - | kind of the power budget: 0 no bound, 1 every round, 2 average over
    fading, 3 sum over devices in every round
start_bits | bit | lower | bits of a broadcast of the start to all devices, not in downlink_bits
compression_actual | 1 | lower | real uplink symbols of the weights over the dense weights
compression_nominal | 1 | lower | uplink symbols over dense weights of the middle layer
trial, path:
path_end_s | s | higher | end of a device's path from a file
trial, round, level:
level_participants | 1 | - | devices that trained a model of this size
trial, level:
level_parameters | 1 | lower | parameters of the model of a size
level_macs | 1 | lower | multiplications of a forward pass of a sample
trial, round, device:
tx_energy_j | J | lower | energy radiated so far
compute_energy_j | J | lower | energy spent on computing so far
charge_j | J | higher | charge of the battery, infinite on mains
tx_power_w | W | lower | mean transmit power
trial, round, device, cause:
device_energy_j | J | lower | energy drawn by a device so far, by cause
trial, event:
timeline_device | 1 | - | device of an event
timeline_round | 1 | - | round in which its update was started, -1: away
timeline_activity | 1 | - | what the device did
timeline_start_s | s | - | simulated time at which it began
timeline_end_s | s | - | simulated time at which it ended
"""
"""Names, units, the better direction and long names of the other variables, below their dims."""

LARGEST_OF_SERVERS = ("dp_mu", "dp_epsilon")
"""Variables of which a trial has the largest value of its servers, not their mean."""


def _read_table() -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    dims: tuple[str, ...] = ()
    for line in _TABLE.replace("\n    ", " ").splitlines():
        if line.endswith(":"):
            dims = tuple(line.removesuffix(":").split(", "))
            continue
        name, units, better, long_name = line.split(" | ")
        found[name] = Variable(units, long_name, dims, better=_DIRECTIONS[better])
    return found


VARIABLES |= _read_table()
"""Every variable a result can hold. Means (train_loss, aggregation_nmse, participants, tx_power_w)
are over the rounds since the previous record; symbols, bits, joules, seconds and updates accumulate
from round 0; end_round, stop_round and diverged_round are NaN where that never happened. A result
has those that its method gives. If a trial has several servers, variables without a
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


SUMS = {
    "tx_energy_j": "energy radiated so far",
    "compute_energy_j": "energy spent on computing so far",
    "device_energy_j": "energy drawn so far",
}
"""Variables of a device that add up over devices (and causes), and what their sum is called."""


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
