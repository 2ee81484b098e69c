"""An SNR that grows by a power of the round, by a falling noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import scenario
from support.broadcasts import FOUR, make_setup, make_shared

from otafl.core.rng import Streams
from otafl.downlink.downlinks import AnalogDownlink
from otafl.scenario import ScenarioError
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.noise import draw_variance

KEYS: dict[str, Any] = {"transport": "over_the_air", "channel": {"name": "awgn", "snr_db": 10}}


@pytest.mark.exact
def test_the_noise_falls_by_twenty_log_t_decibels() -> None:
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    made = Impairments([Impairments.Settings()] * 2, None, streams, [0.0, 2.0])
    combiner = torch.ones(2, 1, 1, dtype=torch.complex128)
    for t in (0, 1, 9):
        wanted = torch.tensor([0.5, 0.5 / (t + 1) ** 2], dtype=torch.float64)
        torch.testing.assert_close(draw_variance(made, combiner, t)[:, 0], wanted)
        torch.testing.assert_close(made.compute_known_noise(t), wanted)
        db = -10.0 * torch.log10(made.compute_noise_share(t)[1])
        assert float(db) == pytest.approx(20.0 * np.log10(t + 1))


@pytest.mark.exact
def test_interference_does_not_fall() -> None:
    streams = Streams([0], [0], dtype=torch.float64)
    settings = [Impairments.Settings(interference_db=3.0)]
    one, other = (Impairments(settings, None, streams, [growth]) for growth in (0.0, 2.0))
    combiner = torch.ones(1, 1, 1, dtype=torch.complex128)
    apart = draw_variance(one, combiner, 4) - draw_variance(other, combiner, 4)
    torch.testing.assert_close(apart, torch.full_like(apart, 0.5 * (1.0 - 1.0 / 25.0)))


@pytest.mark.parametrize("transport", ["ideal", "fsk_majority_vote", "ofdm"])
def test_others_refuse_it_in_a_sentence(transport: str) -> None:
    with pytest.raises(ScenarioError, match=r"channel.snr_growth: transport .* use one of"):
        scenario({"transport": transport, "channel": {"name": "rayleigh", "snr_growth": 2}})


def test_privacy_refuses_it_in_a_sentence() -> None:
    keys = {"channel": {"name": "awgn", "snr_growth": 2}, "privacy": {"clip": 1.0}}
    with pytest.raises(ScenarioError, match=r"channel.snr_growth: the noise that hides data"):
        scenario(KEYS | keys)


@pytest.mark.exact
def test_the_analogue_downlink_grows_too() -> None:
    """In round t its noise is 1 / (t + 1) of that without growth, drawn alike."""
    sent, rows, round = make_shared(), FOUR, 6
    errors = []
    for growth in (0.0, 2.0):
        setup = make_setup()
        setup.hyper["snr_growth"].fill_(growth)
        heard = AnalogDownlink(AnalogDownlink.Settings(), setup).send(sent, rows, round)
        found, exact = heard.expand_rows(rows, 0, 4), sent.expand_rows(rows, 0, 4)
        name = next(n for n, b in exact.tensors.items() if b.is_floating_point())
        errors.append(found.tensors[name] - exact.tensors[name])
    torch.testing.assert_close(errors[1], errors[0] / (round + 1))
