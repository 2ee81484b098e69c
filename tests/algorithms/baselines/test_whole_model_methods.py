"""FedRLR's four baselines: whole rounds against the looped twin, and their measures by hand.

A round: four devices of unequal shares, two trials that differ in the numeric settings, two local
steps, two rounds, without error and over truncated channel inversion, with and without codecs,
biases free of error and over the air.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from contract.small import engine, run
from torch import Tensor
from twins import baselines as twin
from twins.setting import minibatch, mlp

from otafl.algorithms.baselines.whole_model_methods import FedMiD, MagnitudePruning, ProxSgd
from otafl.core.contracts import Hyper, Tensors
from otafl.core.rng import Streams
from otafl.engine.engine import Engine
from otafl.models.base import unflatten
from otafl.models.module_model import ModuleModel
from otafl.uplink.noise import draw_noise

pytestmark = pytest.mark.twin

ROUNDS, S, K = 2, 4, 4
SENSING = {"name": "matrix_sensing", "rows": 5, "iterations": 20, "threshold": 1.2}
SWEPT: dict[str, dict[str, list[float]]] = {
    "fedmid": {"nuclear_weight": [0.05, 0.15], "decay": [0.0, 0.7]},
    "prox_sgd": {"l1_weight": [0.05, 0.3], "learning_rate": [0.2, 0.1]},
    "magnitude_pruning": {"learning_rate": [0.4, 0.1], "decay": [0.3, 0.1]},
    "fedavg": {"server_learning_rate": [1.0, 0.6], "decay": [0.0, 0.5]},
}
AIR = {
    "transport": "over_the_air",
    "channel": {"name": "rayleigh", "snr_db": 20.0},
    "power": {"name": "tci", "threshold": 0.5},
    "output.save_link": True,
}


CASES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"name": "fedmid", "bias_mode": "ota"}, {}, True),
    ({"name": "fedmid"}, {}, False),
    ({"name": "prox_sgd"}, SENSING, True),
    ({"name": "prox_sgd", "bias_mode": "ota"}, {}, False),
    ({"name": "magnitude_pruning", "keep": 0.2, "bias_mode": "ota"}, {}, True),
    ({"name": "magnitude_pruning", "keep": 0.1}, SENSING, False),
    ({"name": "fedavg", "sends": "model"}, {"name": "uniform", "bits": 3}, False),
    ({"name": "fedavg", "sends": "model"}, {}, True),
]
"""Method, codec, and whether the uplink is over the air; else it is ideal."""


def make_engine(algorithm: dict[str, Any], codec: dict[str, Any], air: bool, dtype: str) -> Engine:
    """Two trials of each of two points of the sweep, the first and the last of the product."""
    keys: dict[str, Any] = {"algorithm": {"learning_rate": 0.3, "decay": 0.2, **algorithm}}
    keys |= {"codec": codec or "identity", "transport": "ideal", "model.hidden": [9, 7]}
    swept = SWEPT[algorithm["name"]]
    keys["sweep"] = {f"algorithm.{name}": values for name, values in swept.items()}
    keys |= {"trials": 2, "engine.dtype": dtype, "output.save_link": True}
    return engine(keys | (AIR if air else {}), chosen=[0, 2 ** len(swept) - 1])


NUMBERS: dict[str, Literal[1, 2, 3, 4]]
NUMBERS = {"fedmid": 1, "prox_sgd": 2, "magnitude_pruning": 3, "fedavg": 4}


def make_reference(
    algorithm: dict[str, Any], codec: dict[str, Any], hyper: Hyper, row: int
) -> tuple[twin.Baseline, float, float]:
    """The twin of a trial, and its step size of the first round and decay."""
    value = {name: float(values[row]) for name, values in hyper.items()}
    of = twin.Baseline(NUMBERS[algorithm["name"]])
    of.weight = value.get("nuclear_weight", value.get("l1_weight", 0.0))
    of.keep = algorithm.get("keep", 1.0)
    of.bits = codec.get("bits")
    of.server_step = value.get("server_learning_rate", 1.0)
    return of, value["learning_rate"], value["decay"]


def read_parameters(one: Engine, row: int) -> twin.Model:
    """The server's model of a trial."""
    model, blocks = one.parts.model, one.server
    if list(blocks) == ["model"]:
        blocks = unflatten(blocks["model"], model.shapes)
    arrays = {name: blocks[name][row].double().numpy().copy() for name in model.shapes}
    layers = range(len(arrays) // 2)
    return twin.Model([arrays[f"weight{i}"] for i in layers], [arrays[f"bias{i}"] for i in layers])


def make_sensing(codec: dict[str, Any]) -> twin.Sensing | None:
    """Of 64x9, 9x7 and 7x10 the first two have a side of 9, the longer of the two most common."""
    if not codec:
        return None
    draw = Streams([0], [0], dtype=torch.float64)
    first, second = (draw.draw_normal(f"matrix/weight{i}", 0, (5, 9))[0].numpy() for i in range(2))
    matrices = [first / np.sqrt(5), second / np.sqrt(5), None]
    return twin.Sensing(matrices, codec["iterations"], codec["threshold"])


def read_link(one: Engine, t: int, group: int, row: int, num_coordinates: int) -> twin.Air:
    """The link of a payload group and trial as saved, with the noise's draw: real parts of
    variance 1/2."""
    h, p, eta = (one.link[t][f"{name}/{group}"][row, 0].numpy() for name in ("h", "p", "eta"))
    sent: Any = SimpleNamespace(index=group, num_coordinates=num_coordinates)
    draw = draw_noise(one.parts.streams, sent, t)[row].numpy()
    return twin.Air(h, p, float(np.sqrt(eta)), np.sqrt(0.5) * draw)


def sends_biases(algorithm: dict[str, Any]) -> bool:
    """Whether the biases go over the uplink."""
    return algorithm["name"] == "fedavg" or algorithm.get("bias_mode") == "ota"


@pytest.mark.parametrize(("algorithm", "codec", "air"), CASES)
def test_equals_the_looped_twin(
    algorithm: dict[str, Any], codec: dict[str, Any], air: bool
) -> None:
    """Hold every round's model of every trial, and the symbols of the run, to the twin's."""
    one = make_engine(algorithm, codec, air, "float64")
    sensing = make_sensing(codec) if "rows" in codec else None
    hyper, cohort = one.parts.hyper, one.select_cohort(None, 0)
    reals = 64 * 5 + 5 * 7 + 7 * 10 if sensing else 64 * 9 + 9 * 7 + 7 * 10
    for t in range(ROUNDS):
        models = [read_parameters(one, row) for row in range(S)]
        work = one.parts.samples.training_data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(2)]
        one.run_round(t)
        for row in range(S):
            of, rate, decay = make_reference(algorithm, codec, hyper, row)
            of_biases = None
            if air and sends_biases(algorithm):
                of_biases = read_link(one, t, 1, row, 9 + 7 + 10)
            expected, _ = twin.one_round(
                of,
                models[row],
                [[minibatch(b, K * row + k) for b in batches] for k in range(K)],
                cohort.normalised_weight.view(S, K)[row].numpy(),
                rate / (1 + decay * t),
                sensing,
                read_link(one, t, 0, row, reals) if air else None,
                of_biases,
            )
            after = read_parameters(one, row)
            for ours, theirs in zip(
                after.weights + after.biases, expected.weights + expected.biases, strict=True
            ):
                assert np.abs(theirs).max() > 0
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())
    symbols = one.means.take()["uplink_symbols"]
    biases = 9 + 7 + 10 if sends_biases(algorithm) else 0
    assert symbols.tolist() == [float(ROUNDS * (reals + biases))] * S


class Small(torch.nn.Module):
    """A convolution with a bias, a parameter of one number, a linear layer without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))
        self.conv = torch.nn.Conv2d(1, 6, 3, stride=2)
        self.out = torch.nn.Linear(6 * 9, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.conv(x.view(-1, 1, 8, 8)).relu().flatten(1)
        return self.out(self.scale * seen)


def test_a_module_is_trained() -> None:
    """Filters [6, 1, 3, 3] count as a matrix [6, 9], of which matrix_sensing measures the 9, as of
    no other; the bias and the scale go free of error."""
    algorithm = {"name": "fedmid", "learning_rate": 0.1, "bias_mode": "ideal"}
    codec = {"name": "matrix_sensing", "rows": 3, "side": 9}
    one = engine({"algorithm": algorithm, "codec": codec, "transport": "ideal", "trials": 1})
    parts = dataclasses.replace(one.parts, model=ModuleModel(Small(), (64,), 10))
    made = FedMiD(parts.scenario.algorithm, parts.model, 4)
    ours = Engine(dataclasses.replace(parts, algorithm=made))
    before = {key: block.clone() for key, block in ours.server.items()}
    run(ours, 2)
    for key, block in ours.server.items():
        assert block.shape == before[key].shape
        assert block.isfinite().all()
        assert not torch.equal(block, before[key])
    assert ours.means.take()["uplink_symbols"].tolist() == [2.0 * (6 * 3 + 540)]


def small_server() -> Tensors:
    """Two trials of a server's model (2, 2, 3): weights of rank 1 (the second value is 1e-4 of the
    first) and 2, 4 of 10 not zero; and zeros."""
    first = torch.tensor([[1.0, 0.0], [0.0, 1e-4]])
    second = torch.tensor([[1.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    server = {"weight0": first, "bias0": torch.zeros(2), "weight1": second, "bias1": torch.ones(3)}
    return {name: torch.stack([block, 0.0 * block]) for name, block in server.items()}


def test_measures_by_hand() -> None:
    """Ranks 1 (the second value is 1e-4 of the first) and 2; 4 of 10 weights are not zero."""
    model, server = mlp((2, 2, 3)), small_server()
    assert FedMiD(FedMiD.Settings(), model, 4).compute_metrics(server, {}) == {
        "weight_rank": pytest.approx(torch.tensor([1.5, 0.0]))
    }
    for kind in (ProxSgd, MagnitudePruning):
        assert kind(kind.Settings(), model, 4).compute_metrics(server, {}) == {
            "weight_density": pytest.approx(torch.tensor([0.4, 0.0]))
        }
