"""Predictions of values without a model, beside which personal models are judged.

The mean control predicts each device's mean training label; the line control the least-squares
line of its training labels in time. Both are tested on the devices' own test samples, where a
personal model that is no better has learned nothing from the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otafl.data.build import Samples

MAX_CELLS = 20_000
"""Devices of all trials up to which there are controls."""

Numbers = tuple[np.ndarray, np.ndarray | None]
"""Labels [n, outputs], and times [n] where they are known."""


def compute_control_errors(samples: Samples) -> dict[str, np.ndarray]:
    """Compute the mean squared errors [S] of the controls, by their names.

    Empty without values or without own test samples; `line_control` only where times are known.
    """
    own, data = samples.client_test, samples.training_data
    if own is None or not own.y.is_floating_point() or len(own.count) > MAX_CELLS:
        return {}
    errors: dict[str, list[float]] = {}
    pairs = list(_iterate_devices(samples))
    for trial in range(data.num_trials):
        devices = pairs[trial * data.num_devices : (trial + 1) * data.num_devices]
        squares: dict[str, list[np.ndarray]] = {}
        for train, test in devices:
            for name, predicted in _predict(train, test).items():
                squares.setdefault(name, []).append((predicted - test[0]) ** 2)
        for name, found in squares.items():
            errors.setdefault(name, []).append(float(np.concatenate(found).mean()))
    return {name: np.array(found) for name, found in errors.items()}


def _iterate_devices(samples: Samples) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield training and test labels of each device of each trial."""
    own, data, source = samples.client_test, samples.training_data, samples.data
    assert own is not None
    y_train, y_test = data.y.double().cpu().numpy(), own.y.double().cpu().numpy()
    time_test = source.time_test if len(source.y_test) else source.time
    for k in range(len(own.count)):
        train = data.index[k, : int(data.count[k])].cpu().numpy()
        test = own.index[k, : int(own.count[k])].cpu().numpy()
        yield (
            (y_train[train], None if source.time is None else source.time[train]),
            (y_test[test], None if time_test is None else time_test[test]),
        )


def _predict(train: Numbers, test: Numbers) -> dict[str, np.ndarray]:
    """Return the predictions [n, outputs] of the controls for a device's test samples."""
    labels, mean = train[0], train[0].mean(0)
    found = {"mean_control": np.broadcast_to(mean, test[0].shape)}
    if train[1] is None or test[1] is None:
        return found
    centre = train[1].mean()
    spread = train[1] - centre
    square = (spread**2).sum()
    slope = spread @ (labels - mean) / square if square > 0 else np.zeros_like(mean)
    return found | {"line_control": mean + (test[1] - centre)[:, None] * slope}
