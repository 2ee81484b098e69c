"""Holds pFedBreD to numbers by hand, to its limits, and to what it measures and refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.prior_toy import (
    assert_counts_gradients,
    make_fedavg,
    make_per_fedavg,
    make_pfedme,
    make_prior,
    run_toy,
    solve_exactly,
)
from support.rival_rounds import MODEL, Rounds

from otafl.algorithms.personal.pfedbred import PFedBreD, PFedMe

pytestmark = pytest.mark.exact

ROWS: list[tuple[Any, dict[str, float], list[float], list[float] | None]] = [
    (make_prior("none"), {}, [0.00276586, 0.00543942], [0.01059705, 0.02080900]),
    (make_prior("lg"), {}, [0.00275895, 0.00538522], [0.01306714, 0.02557509]),
    (make_prior("meg"), {}, [0.00273497, 0.00537744], [0.01085240, 0.02130483]),
    (make_prior("meg", "paper"), {}, [0.00276522, 0.00543447], [0.01105409, 0.02168502]),
    (make_prior("mh"), {}, [0.00769420, 0.01510512], [0.01584929, 0.03087647]),
    (make_prior("mh"), {"eta": 0.0}, [0.00773337, 0.01518337], None),
    (make_prior("mh", "paper"), {}, [0.00275814, 0.00537896], [0.01364688, 0.02668330]),
    (make_prior("mh", "c2"), {}, [0.00275816, 0.00537951], [0.01364040, 0.02663332]),
    (make_fedavg(), {}, [0.00499375, 0.00995000], None),
    (make_per_fedavg(), {}, [0.00498128, 0.00985101], None),
    (make_pfedme(), {}, [0.00276586, 0.00543942], [0.01059705, 0.02080900]),
    (make_pfedme(), {"steps": 1}, [0.00138389, 0.00272714], [0.00922593, 0.01818096]),
    (make_pfedme(), {"penalty": 30.0}, [0.00413576, 0.00813056], None),
    (make_pfedme(prox_steps=400), {}, [0.00491200, 0.00933200], [0.01881219, 0.03564866]),
    (make_pfedme(implementation="original"), {}, *([[0.00328006, 0.00640874]] * 2)),
    (
        make_pfedme(implementation="original"),
        {"weight_decay": 0.0},
        *([[0.00328017, 0.00640894]] * 2),
    ),
]


@pytest.mark.parametrize(("method", "changes", "local", "personal"), ROWS)
def test_toy_numbers(
    method: Any, changes: dict[str, Any], local: list[float], personal: list[float] | None
) -> None:
    w, theta = run_toy(method, **changes)
    assert w == pytest.approx(local, abs=6e-9)
    if personal is not None:
        assert theta == pytest.approx(personal, abs=6e-9)


def test_large_penalty() -> None:
    """pFedMe becomes federated averaging, and lg first-order MAML with one batch."""
    plain = run_toy(make_fedavg())[0]
    maml = run_toy(make_per_fedavg())[0]
    assert solve_exactly(make_pfedme(prox_steps=60), 1e6)[0] == pytest.approx(plain, rel=3e-6)
    found = solve_exactly(make_prior("lg", prox_steps=60), 1e6)[0]
    assert found == pytest.approx(maml, rel=3e-6)
    assert found != pytest.approx(plain, rel=1e-4)


def test_coherence_keeps_the_last_envelope_gradient() -> None:
    """lambda (mu - theta) of the last local step is the step of w there, over alpha_m."""
    moved = []
    for steps in (2, 3):
        ours = Rounds("pfedbred", MODEL, {"strategy": "lg", "coherence": True}, steps)
        moved.append(ours.run_round(0).payload[0].tensors["model"])
    update = ours.devices["update"]
    torch.testing.assert_close(moved[0] - moved[1], 0.01 * update.flatten(0, 1))
    measured = ours.method.compute_metrics({}, ours.devices)
    assert measured.keys() == {"update_coherence", "update_coherence_log"}
    assert ((measured["update_coherence"] > 0) & (measured["update_coherence"] < 1)).all()
    assert make_prior("lg").compute_metrics({}, {}) == {}


COUNTS = [
    (make_prior("none"), 5),
    (make_prior("meg"), 5),
    (make_prior("lg"), 6),
    (make_prior("mh", "paper"), 6),
    (make_prior("mh"), 7),
    (make_prior("mh", "c2"), 7),
    (make_pfedme(), 5),
    (make_per_fedavg(), 2),
]


@pytest.mark.parametrize(("method", "count"), COUNTS)
def test_gradients_of_a_step(method: Any, count: int) -> None:
    assert_counts_gradients(method, count)


REFUSED = [
    ({"penalty": 200.0}, "below 2"),
    ({"variant": "c2", "strategy": "lg"}, "strategy: mh"),
]


@pytest.mark.parametrize(("keys", "told"), REFUSED)
def test_refuses(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PFedBreD.Settings.model_validate(keys)
    with pytest.raises(ValueError, match="below 2"):
        PFedMe.Settings(penalty=300.0)
    PFedBreD.Settings(penalty=150.0)  # overshoots, and converges
