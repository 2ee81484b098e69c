"""Race FedJAX: its federated averaging with its default backend, a jitted step for each batch.

Ro, Suresh, Wu 2021, "FedJAX: Federated Learning Simulation with JAX". Its backend `pmap` works on
as many clients at once as JAX has devices, which is one here.
"""

from __future__ import annotations

import math

import fedjax
import haiku as hk
import jax
from measuring import Arrays, Lap, assign_samples, main
from works import CLASSES, KERNEL, LocalData

if "tree_map" not in vars(jax):
    jax.tree_map = jax.tree_util.tree_map  # FedJAX calls it by its name in older versions of JAX

START = hk.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
"""Uniform in +-1/sqrt(fan_in), as the others start."""


def model_of(work: LocalData, sample: dict) -> fedjax.Model:
    """Return the work's network, with samples [n, pixels]."""

    def forward(batch: dict) -> jax.Array:
        x = batch["x"]
        if work.channels:
            side = math.isqrt(x.shape[1] // work.planes)
            x = x.reshape(-1, work.planes, side, side).transpose(0, 2, 3, 1)
            for outputs in work.channels:
                x = hk.Conv2D(outputs, KERNEL, padding=work.padding.upper(), w_init=START)(x)
                x = jax.nn.relu(hk.max_pool(x, 2, 2, "VALID", channel_axis=3))
            x = hk.Flatten()(x)
        for outputs in work.hidden:
            x = jax.nn.relu(hk.Linear(outputs, w_init=START)(x))
        return hk.Linear(CLASSES, w_init=START)(x)

    def loss(batch: dict, scores: jax.Array) -> jax.Array:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], scores)

    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch=sample,
        train_loss=loss,
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
    )


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    x, y = arrays["x_train"], arrays["y_train"].astype("int32")
    clients = fedjax.InMemoryFederatedData(
        {
            f"{i:04}": {"x": x[own], "y": y[own]}
            for i, own in enumerate(assign_samples(work, arrays))
        }
    )
    model = model_of(work, {"x": x[:1], "y": y[:1]})
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(learning_rate=work.rate),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=work.batch, num_epochs=None, num_steps=work.steps
        ),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        clients, num_clients=work.participants, seed=0
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    lap()
    for _ in range(rounds):
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        lap()
    test = {"x": arrays["x_test"], "y": arrays["y_test"].astype("int32")}
    batches = fedjax.padded_batch_client_datasets(
        [fedjax.ClientDataset(test)], fedjax.PaddedBatchHParams(batch_size=1000)
    )
    return float(fedjax.evaluate_model(model, state.params, batches)["accuracy"])


if __name__ == "__main__":
    main(race)
