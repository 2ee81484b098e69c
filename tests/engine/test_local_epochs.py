"""Local work in epochs of devices with different numbers of samples, against looped twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine
from twins import rivals as twin
from twins.network import Minibatch

from otafl.core.rng import Streams, derive_words
from otafl.engine.engine import Engine
from otafl.models.base import unflatten

KEYS: dict[str, Any] = {
    "data.partition": {"name": "dirichlet", "alpha": 0.1},
    "algorithm": {"name": "fedavg", "learning_rate": 0.1},
    "transport": "ideal",
    "training.local_steps": 1,
    "training.local_epochs": 2,
    "training.batch_size": 16,
    "engine.dtype": "float64",
    "trials": 1,
}
EPOCHS, BATCH = 2, 16

pytestmark = pytest.mark.exact


def list_batches(one: Engine, device: int, round: int) -> list[Minibatch]:
    """List the minibatches of a device in a round: its samples in a new order each epoch."""
    data, streams = one.parts.samples.training_data, Streams([7], [0])
    own = data.index[device, : data.count[device]].numpy()
    batches = []
    for epoch in range(EPOCHS):
        pair = torch.tensor([0]), torch.tensor([device])
        tick = torch.tensor([(round << 32) + epoch])
        key = streams.derive_device_keys("epoch", tick, *pair)[0]
        order = own[np.argsort(derive_words(key, 0, len(own))[0].numpy(), kind="stable")]
        for start in range(0, len(own), BATCH):
            taken = order[start : start + BATCH]
            x, y = data.x[taken].double().numpy(), data.y[taken].numpy()
            batches.append(Minibatch(x, y, np.full(len(taken), 1.0 / len(taken))))
    return batches


@pytest.mark.twin
def test_fedavg_equals_its_looped_twin() -> None:
    one = engine(KEYS)
    model, samples = one.parts.model, one.parts.samples.sample_share[0].tolist()
    assert len({-(-n // BATCH) for n in samples}) > 2
    for t in range(2):
        params = unflatten(one.server["model"].clone(), model.shapes)
        batches = [list_batches(one, k, t) for k in range(4)]
        names = [name for layer in model.layers for name in (layer.weight, layer.bias)]
        names.sort(key=lambda name: name.startswith("bias"))
        mean, losses = twin.fedavg(
            [params[name][0].numpy() for name in names], batches, samples, 0.1
        )
        cohort = one.select_cohort(None, t)
        _, loss = one.training.train_cohort(
            one.parts.algorithm.broadcast(one.server, cohort), cohort, t
        )
        np.testing.assert_allclose(loss, losses, rtol=1e-10)
        one.run_round(t)
        found = unflatten(one.server["model"], model.shapes)
        for name, wanted in zip(names, mean, strict=True):
            np.testing.assert_allclose(found[name][0], wanted, rtol=1e-9, atol=1e-12)


def test_clock_and_energy_charge_the_samples_that_a_device_trains_on() -> None:
    """A device's operations grow with its samples, plus those of its steps and its update."""
    one = engine(KEYS)
    cohort = one.select_cohort(None, 0)
    flops = one.parts.submodels.count_flops(cohort)
    samples = one.parts.samples.sample_share[0].numpy()
    steps = EPOCHS * np.ceil(samples / BATCH)
    model = one.parts.model
    expected = EPOCHS * model.count_training_flops(samples) + (2 * steps + 1) * model.num_params
    np.testing.assert_allclose(flops, expected, rtol=1e-12)
