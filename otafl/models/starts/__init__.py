"""Starts of models: the weights before round 0."""

from __future__ import annotations

from typing import Any

from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start

__all__ = ["ServerSamples", "Start", "load"]


def load(section: Any, model: Model, samples: ServerSamples | None) -> None:
    """Load the weights of a start into a model, which draws those that the start does not have.

    Parameters
    ----------
    section : Settings
        Section `model` of a scenario.
    model : Model
        The section's model, whose `start_params` are set.
    samples : ServerSamples, optional
        Samples that no device holds; None where there are none.

    Raises
    ------
    UserError
        If the weights cannot be read or do not fit the model.
    """
    start = getattr(section, "start", None)
    if isinstance(start, Start):
        model.start_params = start.load(section, model, samples)
        if samples is not None and start.is_trained_here:
            model.start_samples = samples.x, samples.y
