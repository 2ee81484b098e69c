"""A channel of the user's own, and what is said of a wrong one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.refusals import assert_refused

import otafl
from otafl import channels, csi
from otafl.channels.custom import Draws
from otafl.core.contracts import ChannelStatistics, LinkBudget
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.csi.long_term import compute_statistics
from otafl.receivers.base import Scalar
from otafl.scenario import load_scenario

MODULE = """
import math
import torch
from scipy.special import gammaincinv

def nakagami(draw, m=2.0):
    share, phase = draw.draw_uniform(2).unbind(-1)
    power = torch.from_numpy(gammaincinv(m, share.cpu().numpy()) / m).to(share)
    return torch.polar(power.sqrt(), 2 * math.pi * phase)

def rayleigh(draw): return draw.draw_complex_normal()
def real(draw): return torch.ones(len(draw.rounds), draw.trials, draw.devices)

class Table:
    correlation_rounds = 7
    def __init__(self, gains): self.gains = torch.tensor(gains)
    def __call__(self, draw): return self.gains[draw.rounds % len(self.gains)] * real(draw)

def loud(draw): return 2.0 * draw.draw_complex_normal()
def distant(draw, decay=0.5): return decay * draw.draw_complex_normal()
distant.unit_power = False

def number(draw): return 1.0
def flat(draw): return draw.draw_complex_normal()[0]
def infinite(draw): return draw.draw_normal() / (draw.rounds != 70)
def normalised(draw):
    h = draw.draw_complex_normal()
    return h / h.abs().square().mean((0, 1, 2), keepdim=True).sqrt()
def odd(draw): return real(draw)
odd.correlation_rounds = 0
def growing(draw): return real(draw)[..., None].expand(-1, -1, -1, len(draw.rounds))
def stretched(draw, subcarrier_groups=3, antennas=1):
    return draw.draw_complex_normal(antennas, subcarrier_groups)
class Silent:
    pass
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_channels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def section(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": f"my_own_channels:{name}", **keys}


@dataclass(frozen=True)
class Link:
    """A channel, its budgets, and what is known of it in the long run."""

    channel: Any
    budget: LinkBudget
    statistics: ChannelStatistics


def link(section: dict[str, Any], devices: int = 5, trials: tuple[int, ...] = (0,)) -> Link:
    scenario = load_scenario({"name": "x", "channel": section})
    streams = Streams([3] * len(trials), trials, dtype=torch.float64)
    sections = [scenario.channel] * len(trials)
    budget, channel = channels.build(sections, devices, streams)
    known = csi.build([scenario.csi] * len(trials), channel, budget, streams)
    noise = torch.full((len(trials),), 0.5, dtype=torch.float64)
    return Link(channel, budget, compute_statistics(channel, known, Scalar(), budget, noise))


def states(channel: dict[str, Any], rounds: list[int], **keys: Any) -> torch.Tensor:
    """[R, S, K, A]."""
    found = link(channel, **keys).channel
    return torch.stack([found.get_state(round).h[..., 0, 0] for round in rounds])


def test_ten_lines_of_nakagami() -> None:
    """The amplitudes of 64 rounds and 50 devices against SciPy's law at 1e-4, with uniform
    phases."""
    m = 0.5
    h = states(section("nakagami", m=m), list(range(64)), devices=50).numpy().ravel()
    assert stats.kstest(np.abs(h), stats.nakagami(m, scale=1.0).cdf).pvalue > 1e-4
    assert stats.kstest(np.angle(h) / (2 * math.pi) + 0.5, "uniform").pvalue > 1e-4


@pytest.mark.exact
def test_draws_depend_on_round_trial_device_and_place_alone() -> None:
    """Whatever else is drawn: in other rounds, trials or by other devices."""
    wide = states(section("rayleigh"), [0, 1, 63, 64, 200], devices=8, trials=(0, 1, 2))
    alone = states(section("rayleigh"), [64], devices=3, trials=(2,))
    torch.testing.assert_close(alone[0, 0], wide[3, 2, :3])
    assert len(wide.real.flatten().unique()) == wide.numel()
    draw = Draws(Streams([3], [0], dtype=torch.float64), 4, torch.arange(3))
    one, other = draw.draw_uniform(), draw.draw_uniform()
    assert not torch.isclose(one, other).any()
    fixed = draw.draw_uniform(2, fixed=True)
    assert fixed.shape == (1, 1, 4, 2)
    later = Draws(Streams([3], [0], dtype=torch.float64), 4, torch.arange(9, 11))
    later.draw_uniform(), later.draw_uniform()
    assert torch.equal(fixed, later.draw_uniform(2, fixed=True))


ON = "channel.name: 'my_own_channels:"
WRONG = [
    (section("absent"), f"{ON}absent': 'absent' does not exist in module"),
    (
        section("nakagami", k=3),
        "channel.k: unknown key of 'my_own_channels:nakagami' (known keys: m)",
    ),
    (
        section("nakagami", mm=3),
        "channel.mm: unknown key of 'my_own_channels:nakagami'; did you mean 'm'?",
    ),
    (section("Table"), "channel.gains: must be given"),
    (
        section("loud"),
        f"{ON}loud' has a mean |h|^2 of 3.92 over 256 rounds; expected 1: return h / 1.98",
    ),
    (
        section("number"),
        f"{ON}number' returned a float; expected a tensor [3, 1, 5], rounds by tria",
    ),
    (section("flat"), f"{ON}flat' returned the shape [1, 5]; expected [3, 1, 5], rounds by trial"),
    (section("normalised"), f"{ON}normalised' returned another h for round 5 alone than for round"),
    (section("odd"), "the attribute correlation_rounds of 'my_own_channels:odd' is 0; expect"),
    (
        section("growing"),
        f"{ON}growing' returned (1, 1) antennas and stretches; expected (3, 1), as in ",
    ),
    (section("Silent"), f"{ON}Silent' is a class whose instances cannot be called; expected a m"),
]


@pytest.mark.exact
def test_what_is_wrong_is_said() -> None:
    assert_refused(lambda case: link(case[0]), [((one,), re.escape(says)) for one, says in WRONG])


@pytest.mark.exact
def test_numbers_that_are_not_finite_are_said_where_they_come() -> None:
    found = link(section("infinite")).channel
    found.get_state(63)
    says = "returned an h that is not finite, in round 70, at trial 0, device 0 of the stack"
    with pytest.raises(UserError, match=re.escape(says)):
        found.get_state(64)


@pytest.mark.exact
def test_a_coefficient_for_each_coordinate() -> None:
    """650 numbers of a softmax regression, as the policy and the receiver see them."""
    own = section("stretched", subcarrier_groups=650, antennas=2, snr_db=120)
    result = otafl.run(
        {
            "name": "each",
            "data": "digits",
            "model": "softmax_regression",
            "algorithm": "fedavg",
            "channel": own,
            "power": "ci",
            "receiver": "mrc",
            "devices": {"count": 3},
            "training": {"rounds": 2, "local_steps": 1, "batch_size": 5, "eval_every": 1},
            "trials": 2,
            "output": {"save_link": True},
        }
    )
    h = result["link_h_0_real"].transpose("trial", "link_round", "segment_0", "device").values
    assert h.shape == (2, 2, 650, 3)
    assert len(np.unique(h)) == h.size
    assert float(result["aggregation_nmse"].max()) < 1e-6
    wide, few = (link(section("stretched", subcarrier_groups=count)) for count in (650, 3))
    assert few.channel.get_state(70).h.shape == (1, 5, 1, 1, 3)
    for statistics in (wide.statistics, few.statistics):
        assert float(statistics.mean_amplitude().mean()) == pytest.approx(0.886, abs=0.02)


@pytest.mark.exact
@pytest.mark.parametrize("transport", ["ofdm", "digital"])
def test_stretches_are_sub_carriers_of_the_other_transports(transport: str) -> None:
    keys = {"transport": {"name": transport, "subcarriers": 48}} if transport == "ofdm" else {}
    training = {"rounds": 2, "local_steps": 1, "batch_size": 5, "eval_every": 2}
    base = {"name": "each", "data": "digits", "algorithm": "fedavg", "devices": {"count": 3}}
    result = otafl.run(base | keys | {"channel": section("stretched"), "training": training})
    assert np.isfinite(result["test_accuracy"].values).all()
