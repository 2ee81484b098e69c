"""Every registered channel, csi, power policy, codec and transport."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from contract.small import TRANSPORTS, engine, run, scenario, section, small
from support.rounding import assert_agree

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.engine.engine import Engine
from otafl.scenario import ScenarioError
from otafl.uplink import Uplink, build

CHANNELS, POWERS = registry.list_names("channel"), registry.list_names("power")


MODULES = registry.TABLES["channel"].modules

FIRST_OF_MODULE = set({module: name for name, module in reversed(MODULES.items())}.values())

FADES = ("awgn", "rayleigh", "tdl-a", "trace")

POLICIES = [(power, FADES[place % len(FADES)]) for place, power in enumerate(POWERS)]

POLICIES += [
    (POWERS[place % len(POWERS)], channel)
    for place, channel in enumerate(CHANNELS)
    if channel in FIRST_OF_MODULE and channel not in FADES
]
"""Every policy over a kind of fading in turn, and a channel of every module with one policy."""

NO_STATISTICS = "ci"
"""A policy that needs no long-term statistics, for tests of other parts: they take longest."""


def uplink(trials: list[int], devices: int = 4, **keys: Any) -> Uplink:
    """Of trials with the same scenario."""
    one = scenario({"devices.count": devices, "power": NO_STATISTICS, **keys})
    return build([one] * len(trials), devices, Streams([7] * len(trials), trials))


@pytest.mark.parametrize("name", sorted(FIRST_OF_MODULE))
def test_channel(name: str) -> None:
    channel = uplink([0, 1, 2], channel=section(name)).channel
    rounds = [-65, -1, 0, 1, 70]
    states = {t: channel.get_state(t) for t in rounds}
    for state in states.values():
        assert state.h.shape[:2] == (3, 4)
        assert state.h.dim() == 5
        assert state.gain.shape == (3, 4)
        assert (state.h.dtype, state.gain.dtype) == (torch.complex64, torch.float32)
        assert state.h.isfinite().all()
        assert state.gain.gt(0).all()
    again = uplink([0, 1, 2], channel=section(name)).channel
    alone = uplink([1], channel=section(name)).channel
    fewer = uplink([0, 1, 2], devices=2, channel=section(name)).channel
    for t in reversed(rounds):  # a round's state does not depend on which came before
        assert torch.equal(again.get_state(t).h, states[t].h)
    for t in (-1, 70):
        assert_agree(alone.get_state(t).h[0], states[t].h[1])
        assert_agree(fewer.get_state(t).h, states[t].h[:, :2])
        some = torch.tensor([1, 3])  # of all devices
        theirs, whole = channel.get_state_of_devices(t, some), channel.get_state(t)
        for symbols in (1, 40):
            assert_agree(theirs.extend_to(symbols)[:, some], whole.extend_to(symbols)[:, some])
    outline = channel.get_large_scale_state(1)
    assert outline.h.shape == states[1].h.shape
    assert_agree(outline.gain, states[1].gain)


def saved_link(
    power: str, channel: str, rounds: int, **keys: Any
) -> tuple[Engine, dict[str, torch.Tensor]]:
    """What rounds of four trials and ten devices leave behind, [rounds, S, ...]."""
    one = engine(
        {
            "power": power,
            "channel": section(channel),
            "devices.count": 10,
            "trials": 4,
            "training.local_steps": 1,
            "output.save_link": True,
            "engine.dtype": "float64",
            **keys,
        }
    )
    run(one, rounds)
    return one, {name: torch.stack([saved[name] for saved in one.link]) for name in one.link[0]}


@pytest.mark.parametrize(
    ("power", "channel", "normalise"),
    [
        *((power, channel, "payload") for power, channel in POLICIES),
        ("full", "rayleigh", "block"),
    ],
)
def test_power_is_within_budget(power: str, channel: str, normalise: str) -> None:
    """In each of 10 rounds for a peak constraint. For others, the mean over 40 rounds of 4 trials
    of 10 devices; truncated inversion's |p|^2 has a relative standard deviation of 1.1 under
    Rayleigh fading, so 1,600 draws are within 15 % of their mean in 5 standard deviations."""
    keys = {"transport": {"name": "over_the_air", "normalise": normalise}}
    peak = registry.load_settings_class("power", power)(name=power).power_constraint == "peak"
    one, saved = saved_link(power, channel, 10 if peak else 40, **keys)
    budget = one.parts.link.budget.budget
    spent = saved["p/0"].abs().square() * saved["m/0"] / budget[:, None]
    policy = one.parts.scenario.power
    silent = ~saved["active/0"]
    assert spent[silent].eq(0).all()
    assert spent.max() > 0
    assert saved["eta/0"].gt(0).all()
    if policy.power_constraint == "peak":
        assert spent.max() <= 1 + 1e-9
    elif policy.power_constraint == "average":
        assert spent.mean() <= 1.15
    if not policy.may_be_silent:
        assert saved["active/0"].any(-1).all()
    # the same power, as the results report it
    mean_power = one.means.take()["tx_power"] / budget
    if normalise == "payload" and spent.shape[2] == 1:
        torch.testing.assert_close(mean_power, spent.mean(0).squeeze(1), rtol=1e-9, atol=0)
    if policy.power_constraint == "peak":
        assert (mean_power <= 1 + 1e-9).all()


@pytest.mark.parametrize(("power", "channel"), POLICIES)
@pytest.mark.usefixtures("fewest_states")
def test_error_follows_from_the_saved_link(power: str, channel: str) -> None:
    """nmse = a^T G a / (w^T G w) with the deviations a_k = c_k w_k / W - w_k, c_k = Re(h_k p_k) /
    sqrt(eta), and the Gram matrices G of the signals, segments added up, beside a noise 200 dB
    down."""
    loud: dict[str, Any] = {"channel.snr_db": 200.0}
    own = registry.load_component("power", power).example_without_noise
    loud |= {f"power.{field}": value for field, value in own.items()}
    one, saved = saved_link(power, channel, 4, **loud)
    weight, gram, on_air = saved["weight/0"][:, :, None], saved["gram/0"], saved["active/0"]
    c = (saved["h/0"] * saved["p/0"]).real / saved["eta/0"].sqrt()[..., None]
    share = (weight * on_air).sum(-1, keepdim=True).clamp_min(1e-12)
    deviation = c * weight * on_air / share - weight

    def of(a: torch.Tensor) -> torch.Tensor:
        return torch.einsum("rsqk,rsqkl,rsql->rs", a, gram, a)

    hand = (of(deviation) / of(weight.expand_as(deviation))).mean(0)
    measured = one.means.take()["aggregation_nmse"]
    torch.testing.assert_close(measured, hand, rtol=1e-6, atol=1e-13)


SENDS_MODEL = {"algorithm": {"name": "fedavg", "sends": "model"}}


@functools.cache
def train_uncompressed(transport: str, sends_model: bool) -> Tensors:
    """Return the server's model after two rounds without a codec. Do not change it."""
    keys = {"codec": "identity", "transport": transport} | (SENDS_MODEL if sends_model else {})
    return run(engine(keys), 2).server


CODECS = registry.list_names("codec")

CODED = {(codec, TRANSPORTS[i % len(TRANSPORTS)]) for i, codec in enumerate(CODECS)}

CODED |= {(CODECS[i % len(CODECS)], transport) for i, transport in enumerate(TRANSPORTS, 1)}

CODED |= {(codec, "over_the_air") for codec in CODECS}
"""Every codec over the air, and over a transport in turn; every transport with a codec in turn."""


@pytest.mark.parametrize(("codec", "transport"), sorted(CODED))
def test_codec_over_transport(codec: str, transport: str) -> None:
    link, code = (
        registry.load_component(*at) for at in (("transport", transport), ("codec", codec))
    )
    keys = {"codec": small("codec", codec), "transport": transport}
    if code.sends_sums and not link.provides_sums:
        with pytest.raises(UserError, match="gives the server a vote"):
            run(engine(keys), 1)
        return
    if code.Settings.example:  # a matrix for each layer
        keys |= SENDS_MODEL
        if link.Settings().assumes_increments:
            with pytest.raises(ScenarioError, match="so it needs increments"):
                engine(keys)
            return
    one, other = run(engine(keys), 2), run(engine(keys), 2)
    plain = train_uncompressed(transport, "algorithm" in keys)
    for name, block in one.server.items():
        assert torch.equal(block, other.server[name])
        assert block.isfinite().all()
        assert torch.equal(block, plain[name]) == code.is_lossless
    taken = one.means.take()
    assert taken["uplink_symbols"].gt(0).all()
    assert taken["airtime_s"].gt(0).all()
    assert taken["radio_j"].gt(0).all()
    assert taken["uplink_bits"].gt(0).all() == (link.counts == "all")
