"""Holds pFedBreD to numbers by hand, to its limits, and to what it measures and refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.prior_toy import (
    RATES,
    SIZES,
    assert_counts_gradients,
    make_fedavg,
    make_network,
    make_per_fedavg,
    make_pfedme,
    make_prior,
    make_strategy,
    run_states,
    run_toy,
    solve_exactly,
)
from support.rounding import assert_agree
from twins.setting import everyone, local_data, mlp

from otafl.algorithms.personal.pfedbred import PFedBreD, PFedMe
from otafl.core.contracts import LocalContext
from otafl.core.rng import Streams

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


def test_pfedme_is_strategy_none() -> None:
    first, second = run_states(make_strategy("none")), run_states(make_network(PFedMe))
    for ours, theirs in zip(first, second, strict=True):
        assert_agree({name: ours[name] for name in theirs}, theirs)
    original = run_states(make_network(PFedMe, implementation="original"))
    assert not torch.allclose(original[0]["model"], first[0]["model"])


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
    keys = {"strategy": "lg", "coherence": True}
    rows = []
    for steps in (2, 3):
        ours = PFedBreD(PFedBreD.Settings.model_validate(keys), mlp((6, 8, 3)), 3)
        streams = Streams([5], [0], dtype=torch.float64)
        data = local_data(SIZES[:1], 6, 3, streams, batch_size=4, steps=steps)
        cohort = everyone(torch.full((1, 3), 1 / 3, dtype=torch.float64))
        hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in RATES.items()}
        server, start = ours.init(streams, hyper)
        devices = {n: b.expand(1, 3, *b.shape[2:]).flatten(0, 1).clone() for n, b in start.items()}
        broadcast = ours.broadcast(server, cohort).expand_rows(cohort, 0, 3)
        context = LocalContext(cohort, hyper, streams, 0, data.select_cohort(0, cohort))
        state, (group,), _ = ours.run_local_update(broadcast, devices, context)
        rows.append((state["update"], group.tensors["model"]))
    torch.testing.assert_close(rows[0][1] - rows[1][1], 0.01 * rows[1][0])
    blocks = {"update": rows[1][0][None]}
    measured = ours.compute_metrics({}, blocks)
    assert measured.keys() == {"update_coherence", "update_coherence_log"}
    assert 0 < float(measured["update_coherence"]) < 1
    assert make_prior("lg").compute_metrics({}, {}) == {}


COUNTS = [
    (make_prior("none"), 5),
    (make_prior("meg"), 5),
    (make_prior("lg"), 6),
    (make_prior("mh", "paper"), 6),
    (make_prior("mh"), 7),
    (make_prior("mh", "c2"), 7),
    (make_pfedme(), 5),
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
