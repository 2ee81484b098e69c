"""Local work of a round in words: steps, epochs and samples of a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otafl.core.contracts.learning import count_epoch_steps
from otafl.core.suggestions import format_count
from otafl.data.device_splits import get_training_sizes
from otafl.scenario import Point, Scenario

MAX_ASKED = 50
"""Largest number of points whose local work is compared."""


def describe_local_work(points: Sequence[Point]) -> list[str]:
    """Describe the local work of a scenario in steps and epochs.

    Parameters
    ----------
    points : sequence of Point
        Points of the scenario.

    Returns
    -------
    list of str
        A sentence, such as "local work: 10 steps = 2.0 epochs of 100 samples". Nothing if the data
        set declares no number of samples, or if points differ.
    """
    found = {_describe(point.scenario) for point in points[:MAX_ASKED]}
    return [text for text in found if text] if len(found) == 1 else []


def _describe(scenario: Scenario) -> str:
    training = scenario.training
    sizes = np.array(get_training_sizes(scenario.data, scenario.devices.count))
    if not len(sizes) or sizes.min() < 1:
        return ""
    low, high = int(sizes.min()), int(sizes.max())
    samples = f"{low:,} samples" if low == high else f"{low:,} to {high:,} samples"
    if len(sizes) < scenario.devices.count:
        samples = f"{low:,} samples on average"
    if training.local_epochs is None:
        work = format_count(training.local_steps, "step")
        per_epoch = count_epoch_steps(sizes, training.batch_size, 1)
        share = _format_range(training.local_steps / per_epoch)
        unit = "epoch" if share == "1" else "epochs"
        return f"local work: {work} = {share} {unit} of {samples}"
    work = format_count(training.local_epochs, "epoch")
    steps = count_epoch_steps(sizes, training.batch_size, training.local_epochs)
    taken = _format_range(steps)
    return f"local work: {work} = {taken} {'step' if taken == '1' else 'steps'} for {samples}"


def _format_range(values: np.ndarray) -> str:
    """Format the least and the largest value, or the value that all have."""
    low, high = (
        f"{value:,.0f}" if value == round(value) and value >= 10 else f"{value:.2g}"
        for value in (float(values.min()), float(values.max()))
    )
    return low if low == high else f"{low} to {high}"
