"""Holds local training, Ditto and APFL against their looped twins and in their limits.

Two trials of different rates, five devices of unequal shares, a round of all and two of some, so
that absent devices and the state between rounds count.
"""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine, run
from support.rival_rounds import (
    MODEL,
    OWN,
    RATE,
    RATES,
    SERVER,
    WHO,
    Round,
    Rounds,
    assert_close,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    read_device,
    read_server,
    take_step,
    to_arrays,
)
from twins import rivals as twin

from otafl.algorithms.personal.own_models import Ditto
from otafl.core import registry

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_local_only() -> None:
    ours = Rounds("local_only", MODEL, personal_learning_rate=OWN)
    assert ours.server == {}
    v = [[read_device(ours, s, k) for k in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one: Round = ours.run_round(t, who)
        assert one.payload == ()
        for s in range(2):
            for k, own, loss in zip(
                list_members(one, s), draw_batches(one, s), compute_losses(one, s), strict=True
            ):
                v[s][k], expected = twin.sgd(v[s][k], own, OWN[s])
                np.testing.assert_allclose(loss, expected, rtol=1e-12)
            for k in range(5):
                assert_close(read_device(ours, s, k), v[s][k])


def test_local_only_sends_nothing() -> None:
    """No transport takes a symbol, bit, second or joule of radio, and work is still paid for."""
    for transport in registry.list_names("transport"):
        one = run(engine({"algorithm": "local_only", "transport": transport}), 2)
        taken = one.means.take()
        for name in ("uplink_symbols", "uplink_bits", "airtime_s", "radio_j", "participants"):
            assert taken[name].eq(0).all(), name
        assert not one.downlink_bits.any()
        assert (one.parts.clock.compute_spent_j()[..., 0] > 0).all()


@pytest.mark.twin
def test_ditto() -> None:
    penalty = [0.5, 2.0]
    ours = Rounds("ditto", MODEL, penalty=penalty, personal_learning_rate=OWN, **RATES)
    w = [read_server(ours, s) for s in range(2)]
    v = [[w[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            there = list_members(one, s)
            mean, new, loss = twin.ditto(
                w[s],
                [v[s][k] for k in there],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
                OWN[s],
                penalty[s],
            )
            w[s] = take_step(w[s], mean, SERVER[s])
            for k, params in zip(there, new, strict=True):
                v[s][k] = params
            assert_close(read_server(ours, s), w[s])
            for k in range(5):
                assert_close(read_device(ours, s, k), v[s][k])
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)


def test_refuses_a_step_that_jumps_over_the_centre() -> None:
    with pytest.raises(
        ValueError, match=r"personal_learning_rate times penalty .* got 0.1 times 10"
    ):
        Ditto.Settings(personal_learning_rate=0.1, penalty=10)


@pytest.mark.twin
@pytest.mark.parametrize(("adaptive", "rate"), [(True, OWN), (True, [3.0, 2.0]), (False, OWN)])
def test_apfl(adaptive: bool, rate: list[float]) -> None:
    """It also does with steps so large that alpha is cut off."""
    mixing = [0.3, 0.9]
    ours = Rounds(
        "apfl",
        MODEL,
        {"adaptive": adaptive},
        personal_learning_rate=rate,
        mixing=mixing,
        **RATES,
    )
    w = [read_server(ours, s) for s in range(2)]
    v = [[w[s]] * 5 for s in range(2)]
    alpha = [[mixing[s]] * 5 for s in range(2)]
    seen = []
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            there = list_members(one, s)
            mean, new, alphas, loss = twin.apfl(
                w[s],
                [v[s][k] for k in there],
                [alpha[s][k] for k in there],
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
                rate[s],
                adaptive,
            )
            w[s] = take_step(w[s], mean, SERVER[s])
            for k, params, share in zip(there, new, alphas, strict=True):
                v[s][k], alpha[s][k] = params, share
            assert_close(read_server(ours, s), w[s])
            for k in range(5):
                assert_close(read_device(ours, s, k), v[s][k])
            np.testing.assert_allclose(ours.devices["mixing"][s], alpha[s], rtol=0, atol=1e-12)
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)
            seen += alpha[s]
    personal = ours.method.build_views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            share = alpha[s][k]
            mixed = twin.plus([share * a for a in v[s][k]], w[s], 1.0 - share)
            assert_close(to_arrays(MODEL, personal, 5 * s + k), mixed)
    if adaptive and rate is not OWN:
        assert {0.0, 1.0} & set(seen)
    assert (len(set(seen)) > 2) == adaptive
