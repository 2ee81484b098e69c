"""Graphs of neighbours: exchanges, weights and slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from support.refusals import assert_refused

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.engine.engine import Engine
from otafl.topology import graph

pytestmark = pytest.mark.exact


RING: dict[str, Any] = {"name": "graph", "shape": "ring"}
IDEAL = {"transport": "ideal", "engine.dtype": "float64"}


def compute_second_modulus(weights: np.ndarray) -> float:
    """The largest factor by which an exchange reduces the distance of the nodes from their mean."""
    return float(np.linalg.norm(weights - 1.0 / len(weights), 2))


def exchanged(one: Engine, t: int = 0) -> Tensors:
    """What the nodes have after an exchange alone."""
    done = one.parts.topology.exchange(one.server, one.sample_share, t, one.parts.algorithm)
    assert done is not None
    return done.server


def scattered(one: Engine) -> torch.Tensor:
    """Give each node a model of its own, and return them."""
    generator = torch.Generator().manual_seed(5)
    model = one.server["model"]
    one.server = {"model": torch.randn(model.shape, generator=generator).to(model)}
    return one.server["model"]


def test_a_complete_graph_is_a_star() -> None:
    """Over ideal links, where each has as many samples and draws no minibatches."""
    keys: dict[str, Any] = IDEAL | {
        "algorithm": "fedprox",
        "devices.count": 5,
        "data": {"name": "digits", "train_samples": 300, "partition": "iid"},
        "training": {"rounds": 4, "batch_size": 300, "local_steps": 2, "eval_samples": 40},
    }
    graph = run(engine(keys | {"topology": RING | {"shape": "complete"}}, [0]), 3)
    star = run(engine(keys, [0]), 3)
    expected = star.server["model"].expand(5, -1)
    torch.testing.assert_close(graph.server["model"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("transport", ["ideal", {"name": "digital", "gain_threshold": 0.0}])
def test_an_exchange_is_the_weights_times_the_models(transport: Any) -> None:
    keys = IDEAL | {"transport": transport, "devices.count": 6, "topology": RING}
    one = engine(keys, [0, 1])
    before = scattered(one).clone()
    after = exchanged(one)["model"]
    weights = torch.from_numpy(graph.metropolis_weights(graph.ring_edges(6)))
    for trial in range(2):
        rows = slice(6 * trial, 6 * trial + 6)
        tolerance = {"rtol": 1e-3, "atol": 1e-3} if transport != "ideal" else {}
        torch.testing.assert_close(after[rows], weights @ before[rows], **tolerance)


def test_weights_of_a_file_that_are_not_symmetric(tmp_path: Path) -> None:
    turn = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    file = tmp_path / "w.csv"
    np.savetxt(file, turn, delimiter=",")
    topology = {"name": "graph", "shape": "file", "path": str(file)}
    one = engine(IDEAL | {"devices.count": 3, "topology": topology}, [0])
    before = scattered(one).clone()
    after = exchanged(one)["model"]
    torch.testing.assert_close(after, torch.from_numpy(turn) @ before)
    distance = (after - after.mean(0)).norm() / (before - before.mean(0)).norm()
    assert distance <= compute_second_modulus(turn) + 1e-12


@pytest.mark.parametrize("shape", ["ring", "torus"])
def test_the_consensus_error_contracts(shape: str) -> None:
    """By the square of the second largest eigenvalue modulus at least, where nothing disturbs."""
    one = engine(IDEAL | {"devices.count": 8, "topology": RING | {"shape": shape}}, [0])
    scattered(one)
    at = compute_second_modulus(graph.metropolis_weights(getattr(graph, f"{shape}_edges")(8)))
    measures, method = one.parts.topology.compute_metrics, one.parts.algorithm
    before = measures(one.server, method)["consensus_error"]
    after = measures(exchanged(one), method)["consensus_error"]
    assert (after <= at**2 * before * (1 + 1e-9) + 1e-25).all()
    assert (before > 0.1).all()
    mean = one.server["model"].mean(0)
    torch.testing.assert_close(exchanged(one)["model"].mean(0), mean)  # it is kept


def test_over_the_air_each_has_its_own_noise() -> None:
    """Without fading and noise it is the exchange; with noise, off by its own at each node."""
    keys = {"engine.dtype": "float64", "devices.count": 6, "topology": RING, "power": "ci"}
    quiet = engine(keys | {"channel": {"name": "rayleigh", "snr_db": 200}}, [0])
    before = scattered(quiet).clone()
    weights = torch.from_numpy(graph.metropolis_weights(graph.ring_edges(6)))
    torch.testing.assert_close(exchanged(quiet)["model"], weights @ before, rtol=1e-6, atol=1e-6)
    loud = engine(keys | {"channel": {"name": "rayleigh", "snr_db": 10}}, [0])
    scattered(loud)
    error = exchanged(loud)["model"] - weights @ before
    assert (error.std(1) > 1e-3).all()
    correlation = torch.corrcoef(error)
    assert (correlation - torch.eye(6)).abs().max() < 0.5


def test_slots_and_joules_are_counted() -> None:
    """A ring of nine takes three slots, and each sends in two of them."""
    keys = {"devices.count": 9, "topology": RING, "power": "full", "channel": {"name": "awgn"}}
    one = engine(keys, [0])
    done = one.parts.topology.exchange(one.server, one.sample_share, 0, one.parts.algorithm)
    assert done is not None
    report, reals = done.report, one.server["model"].shape[1]
    assert report is not None
    assert report.symbols.tolist() == [3.0 * reals] * 9
    budget = one.parts.link.budget
    torch.testing.assert_close(report.airtime_s, 3 * reals / budget.bandwidth_hz[:9])
    whole = 2 * reals * budget.budget * budget.unit_energy_j[:, None]
    torch.testing.assert_close(report.energy_j, whole[:9].double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(report.on_air_s, (2 / 3 * report.airtime_s)[:, None].double())


def test_devices_that_are_too_far_apart_are_refused() -> None:
    with pytest.raises(UserError, match="which connects 4 devices in none of 100 draws"):
        engine({"topology": {"name": "graph", "shape": "geometric", "reach": 0.01}}, [0])


def test_what_does_not_go_with_it() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"topology": RING | {"path": "w.csv"}}, "path and shape: file need each other"),
        (
            {"topology": RING, "codec": "topk"},
            "codec: 'topk' needs a server, which a graph does not have",
        ),
        ({"topology": RING, "devices.count": 1}, "got 1, with which no device has a neighbour"),
        ({"topology": RING, "algorithm": "tdpfed"}, "'tdpfed' trains factors"),
        ({"topology": RING, "devices.participants": 2}, "all devices take part in every round"),
    ]
    assert_refused(lambda case: scenario(case[0]), [((keys,), said) for keys, said in cases])


GRAPHS = {
    "ring": graph.ring_edges(7),
    "two": graph.ring_edges(2),
    "torus": graph.torus_edges(12),
    "complete": graph.complete_edges(5),
    "geometric": graph.geometric_edges(np.random.default_rng(1).random((12, 2)), 0.5),
}


@pytest.mark.parametrize("shape", GRAPHS)
def test_weights_are_doubly_stochastic_and_contract(shape: str) -> None:
    edges = GRAPHS[shape]
    made = graph.metropolis_weights(edges)
    np.testing.assert_allclose(made.sum(0), 1.0)
    np.testing.assert_allclose(made.sum(1), 1.0)
    np.testing.assert_allclose(made, made.T, rtol=1e-12)
    assert (made >= 0).all()
    assert ((made > 0) & graph.complete_edges(len(edges)) == edges).all()
    assert compute_second_modulus(made) < 1 == graph.is_connected(edges)


def test_weights_worked_by_hand() -> None:
    """A path of three nodes: degrees 1, 2, 1; and a star of four, whose centre has three."""
    path = np.diag([True, True], 1) | np.diag([True, True], -1)
    third = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3.0
    np.testing.assert_allclose(graph.metropolis_weights(path), third)
    tail = np.zeros((4, 4), bool)  # 0 - 1, and the triangle 1, 2, 3: degrees 1, 3, 2, 2
    for one, other in ((0, 1), (1, 2), (1, 3), (2, 3)):
        tail[one, other] = tail[other, one] = True
    quarter = np.array([[3, 1, 0, 0], [1, 1, 1, 1], [0, 1, 2, 1], [0, 1, 1, 2]]) / 4.0
    quarter[2, 3] = quarter[3, 2] = 1.0 / 3.0
    quarter[2, 2] = quarter[3, 3] = 1.0 - 1.0 / 4.0 - 1.0 / 3.0
    np.testing.assert_allclose(graph.metropolis_weights(tail), quarter)


@pytest.mark.parametrize("shape", GRAPHS)
def test_nobody_hears_while_it_sends_nor_sends_to_two(shape: str) -> None:
    edges = GRAPHS[shape]
    slot = graph.assign_slots(edges)
    for number in range(slot.max() + 1):
        hears = np.flatnonzero(slot == number)
        sends = edges[hears]
        assert sends.sum(0).max() <= 1  # each to one at most
        assert not sends[:, hears].any()
    assert set(slot.tolist()) == set(range(slot.max() + 1))


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    cases = [
        ("0.5,0.5\n0.5,x\n", "cannot be read as a table of numbers"),
        ("\n", "cannot be read as a table of numbers \\(it is empty\\)"),
        ("0.5,0.5\n", "has 1 lines; must have as many numbers"),
        ("0.5,0.5\n0.6,0.4\n", "are not doubly stochastic"),
        ("1.5,-0.5\n-0.5,1.5\n", "are not doubly stochastic"),
    ]

    def read(text: str) -> None:
        (tmp_path / "w.csv").write_text(text)
        graph.read_weights(str(tmp_path / "w.csv"))

    assert_refused(read, cases)
