"""Holds pFedMe to numbers worked out by hand, to its limits, and to what it counts and refuses."""

from __future__ import annotations

from typing import Any

import pytest
from support.prior_toy import (
    assert_counts_gradients,
    make_fedavg,
    make_pfedme,
    run_toy,
    solve_exactly,
)

from otafl.algorithms.personal.pfedbred import PFedMe

pytestmark = pytest.mark.exact

ROWS: list[tuple[Any, dict[str, float], list[float], list[float] | None]] = [
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
    """It becomes federated averaging, and theta - mu falls as 1 / lambda."""
    plain = run_toy(make_fedavg())[0]
    many = {"prox_steps": 60}
    assert solve_exactly(make_pfedme(**many), 1e6)[0] == pytest.approx(plain, rel=3e-6)
    near = [solve_exactly(make_pfedme(**many), penalty, steps=1)[1] for penalty in (1e3, 1e4)]
    assert near[0] == pytest.approx([10 * value for value in near[1]], rel=2e-3)


def test_gradients_of_a_step() -> None:
    assert_counts_gradients(make_pfedme(), 5)


def test_refuses_a_solver_that_diverges() -> None:
    with pytest.raises(ValueError, match="below 2"):
        PFedMe.Settings(penalty=300.0)
