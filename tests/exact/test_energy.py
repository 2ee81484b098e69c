"""Joules worked by hand, and accounts that add up."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.clock import Speeds
from otafl.energy import Account, compute_energy_j, radio_energy_j


def test_compute_energy_by_hand():
    """12e9 operations at 4 a cycle are 3e9 cycles; at 2 GHz each costs 1e-28 x 4e18 = 4e-10 J.
    6e9 operations at 3 a cycle are 2e9 cycles; at 1 GHz each costs 5e-28 x 1e18 = 5e-10 J."""
    speeds = Speeds(np.array([8e9, 3e9]), np.array([2e9, 1e9]), np.array([1e-28, 5e-28]))
    joules = compute_energy_j(np.array([12e9, 6e9]), speeds)
    np.testing.assert_allclose(joules, [1.2, 1.0], rtol=1e-14)


def test_the_same_work_twice_as_fast_costs_four_times_the_energy():
    frequency = np.array([1e9, 2e9])
    joules = compute_energy_j(1e9, Speeds(4 * frequency, frequency, np.full(2, 1e-28)))
    np.testing.assert_allclose(joules[1] / joules[0], 4.0, rtol=1e-14)


def test_radio_energy_by_hand():
    np.testing.assert_allclose(
        radio_energy_j(np.array([[0.1, 0.0], [0.2, 0.3]]), np.array([[0.5], [2.0]])),
        [[0.05, 0.0], [0.4, 0.6]],
        rtol=1e-15,
    )


def test_causes_add_up_to_the_total():
    rng = np.random.default_rng(0)
    account, charged = Account(3, 4), {"compute": 0.0, "radio": 0.0}
    for _ in range(20):
        for cause in charged:
            joules = rng.random((3, 4))
            account.charge(cause, joules)
            charged[cause] += joules.sum()
    for cause, joules in charged.items():
        np.testing.assert_allclose(account.spent[cause].sum(), joules, rtol=1e-12)
    np.testing.assert_allclose(
        account.total(), account.spent["compute"] + account.spent["radio"], rtol=1e-15
    )
    np.testing.assert_allclose(account.total().sum(), sum(charged.values()), rtol=1e-12)


def test_rows_are_charged_to_their_pairs_and_repeated_ones_twice():
    account = Account(2, 3)
    account.charge_rows(
        "compute", np.array([0, 1, 1, 0]), np.array([2, 0, 0, 1]), np.array([1.0, 2.0, 4.0, 8.0])
    )
    assert account.spent["compute"].tolist() == [[0.0, 8.0, 1.0], [6.0, 0.0, 0.0]]
    assert account.spent["radio"].tolist() == [[0.0] * 3] * 2


def test_what_is_left_of_a_budget():
    account = Account(2, 2)
    account.charge("compute", np.array([[1.0, 2.0], [3.0, 4.0]]))
    account.charge("radio", np.array([[0.5, 0.0], [0.0, 2.0]]))
    assert account.left(5.0).tolist() == [[3.5, 3.0], [2.0, 0.0]]
    assert account.left(np.array([[2.0], [10.0]])).tolist() == [[0.5, 0.0], [7.0, 4.0]]
    assert account.left(None).tolist() == [[np.inf] * 2] * 2


def test_a_diverged_device_taints_only_itself():
    account = Account(1, 2)
    account.charge("radio", np.array([[np.nan, 1.0]]))
    assert np.isnan(account.total()[0, 0])
    assert account.total()[0, 1] == 1.0


def test_negative_joules_and_unknown_causes_are_refused():
    account = Account(1, 2)
    with pytest.raises(ValueError, match="radio energy charged must not be negative, got -1"):
        account.charge("radio", np.array([[0.0, -1.0]]))
    with pytest.raises(ValueError, match="compute energy"):
        account.charge_rows("compute", np.array([0]), np.array([0]), np.array([-0.5]))
    with pytest.raises(KeyError):
        account.charge("heating", np.zeros((1, 2)))
    assert account.total().tolist() == [[0.0, 0.0]]
