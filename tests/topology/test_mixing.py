"""Graphs, the weights of their edges, and slots in which nodes hear each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.refusals import assert_refused

from otafl.topology import mixing

pytestmark = pytest.mark.exact

GRAPHS = {
    "ring": mixing.ring_edges(7),
    "two": mixing.ring_edges(2),
    "torus": mixing.torus_edges(12),
    "complete": mixing.complete_edges(5),
    "geometric": mixing.geometric_edges(np.random.default_rng(1).random((12, 2)), 0.5),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_weights_are_doubly_stochastic_and_contract(graph: str) -> None:
    edges = GRAPHS[graph]
    made = mixing.metropolis_weights(edges)
    np.testing.assert_allclose(made.sum(0), 1.0)
    np.testing.assert_allclose(made.sum(1), 1.0)
    np.testing.assert_allclose(made, made.T, rtol=1e-12)
    assert (made >= 0).all()
    assert ((made > 0) & mixing.complete_edges(len(edges)) == edges).all()
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(made)))
    assert mixing.compute_second_modulus(made) == pytest.approx(eigenvalues[-2], abs=1e-12)
    assert eigenvalues[-2] < 1 == mixing.is_connected(edges)


def test_weights_worked_by_hand() -> None:
    """A path of three nodes: degrees 1, 2, 1; and a star of four, whose centre has three."""
    path = np.diag([True, True], 1) | np.diag([True, True], -1)
    third = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3.0
    np.testing.assert_allclose(mixing.metropolis_weights(path), third)
    np.testing.assert_allclose(mixing.max_degree_weights(path), third)
    tail = np.zeros((4, 4), bool)  # 0 - 1, and the triangle 1, 2, 3: degrees 1, 3, 2, 2
    for one, other in ((0, 1), (1, 2), (1, 3), (2, 3)):
        tail[one, other] = tail[other, one] = True
    quarter = np.array([[3, 1, 0, 0], [1, 1, 1, 1], [0, 1, 2, 1], [0, 1, 1, 2]]) / 4.0
    np.testing.assert_allclose(mixing.max_degree_weights(tail), quarter)
    quarter[2, 3] = quarter[3, 2] = 1.0 / 3.0
    quarter[2, 2] = quarter[3, 3] = 1.0 - 1.0 / 4.0 - 1.0 / 3.0
    np.testing.assert_allclose(mixing.metropolis_weights(tail), quarter)


@pytest.mark.parametrize("graph", GRAPHS)
def test_nobody_hears_while_it_sends_nor_sends_to_two(graph: str) -> None:
    edges = GRAPHS[graph]
    slot = mixing.assign_slots(edges)
    for number in range(slot.max() + 1):
        hears = np.flatnonzero(slot == number)
        sends = edges[hears]
        assert sends.sum(0).max() <= 1  # each to one at most
        assert not sends[:, hears].any()
    assert set(slot.tolist()) == set(range(slot.max() + 1))


def test_a_ring_takes_as_few_slots_as_can_be() -> None:
    """The square of a cycle takes 3 colours if 3 divides N, and otherwise 4 except for N = 5."""
    assert mixing.assign_slots(mixing.ring_edges(2)).max() + 1 == 2
    for nodes in (*range(3, 41), 101):
        least = 5 if nodes == 5 else 3 if nodes % 3 == 0 else 4
        assert mixing.assign_slots(mixing.ring_edges(nodes)).max() + 1 == least
    assert mixing.assign_slots(mixing.complete_edges(5)).max() + 1 == 5


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    cases = [
        ("0.5,0.5\n0.5,x\n", "cannot be read as a table of numbers"),
        ("0.5,0.5\n", "has 1 lines; must have as many numbers"),
        ("0.5,0.5\n0.6,0.4\n", "are not doubly stochastic"),
        ("1.5,-0.5\n-0.5,1.5\n", "are not doubly stochastic"),
    ]

    def read(text: str) -> None:
        (tmp_path / "w.csv").write_text(text)
        mixing.read_weights(str(tmp_path / "w.csv"))

    assert_refused(read, cases)
