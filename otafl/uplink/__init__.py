"""The uplink, which carries the updates of a round to the server, with all its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl import channels, codecs, csi, receivers
from otafl.channels.base import Channel
from otafl.codecs.base import Codec
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.csi.base import Csi
from otafl.csi.long_term import compute_statistics
from otafl.devices.faults import compute_jammer_power
from otafl.power.base import PowerPolicy
from otafl.privacy import mechanism as privacy
from otafl.uplink.base import Transport
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.power import Alignment
from otafl.uplink.report import Saves


@dataclass(frozen=True)
class Uplink:
    """Parts between the devices' payloads and the server.

    Parameters
    ----------
    channel : Channel
        Channels from the devices to the server's antennas.
    budget : LinkBudget
        Power budgets and bandwidth of the S trials.
    codec : Codec
        Compression of the updates.
    transport : Transport
        Scheme that carries the payload.
    csi : Csi
        Channel estimates of devices and server.
    """

    channel: Channel
    budget: LinkBudget
    codec: Codec
    transport: Transport
    csi: Csi


def build(
    rows: Sequence[Any],
    devices: int,
    streams: Streams,
    save_gram: bool = True,
    policy: PowerPolicy | None = None,
    power_db: np.ndarray | None = None,
    mains: bool = True,
    reached: Callable[[Channel], Channel] = lambda channel: channel,
    neighbours: Callable[[Channel], InterCellInterference | None] = lambda channel: None,
) -> Uplink:
    """Build the uplink of S trials over K devices.

    Parameters
    ----------
    rows : sequence of Scenario
        Scenarios of the trials, which differ only in stackable fields.
    devices : int
        Number of devices, K.
    streams : Streams
        Random streams of the S trials.
    save_gram : bool
        Whether saved links include the Gram matrices of the signals.
    policy : PowerPolicy, optional
        Policy to use instead of the scenario's.
    power_db : ndarray [S, K], optional
        Power budgets of the devices relative to the channel's, in dB.
    mains : bool
        Whether no device has a battery.
    reached : callable, Channel -> Channel
        Returns the channel to the servers, given the scenario's channel.
    neighbours : callable, Channel -> InterCellInterference or None
        Returns the interference between servers; None if there is none.

    Returns
    -------
    Uplink
        All parts, with the transport made of them.
    """
    scenario = rows[0]
    budget, channel = channels.build([row.channel for row in rows], devices, streams, power_db)
    channel = reached(channel)
    known = csi.build([row.csi for row in rows], channel, budget, streams)
    if policy is None:
        policy = registry.make_component("power", scenario.power)
    receiver = receivers.build(
        scenario.receiver, policy, channel.get_large_scale_state(0).h.shape[2]
    )
    jammer = compute_jammer_power([row.faults for row in rows], streams)
    growth = [getattr(row.channel, "snr_growth", 0.0) for row in rows]
    impairments = Impairments([row.impairments for row in rows], jammer, streams, growth)
    codec = codecs.build([row.codec for row in rows], streams)
    others = neighbours(channel)
    alignment = Alignment(
        csi=known,
        receiver=receiver,
        policy=policy,
        statistics=compute_statistics(channel, known, receiver, budget, impairments.known_noise),
        hyper=build_hyper([row.power for row in rows], streams),
        impairments=impairments,
    )
    parts = {
        "budget": budget,
        "alignment": alignment,
        "csi": known,
        "statistics": alignment.statistics,
        "impairments": impairments,
        "codec": codec,
        "streams": streams,
        "hyper": build_hyper([row.transport for row in rows], streams),
        "privacy": privacy.build(rows, policy, devices, streams, mains, others),
        "neighbours": others,
        "saves": Saves(scenario.output.save_link, save_gram),
    }
    return Uplink(channel, budget, codec, make(scenario.transport, parts), known)


def make(settings: Any, parts: Mapping[str, Any]) -> Transport:
    """Make the transport of some settings from the parts that its constructor names.

    Parameters
    ----------
    settings : Transport.Settings
        Settings of the transport, whose `name` chooses the class.
    parts : mapping of str to Any
        Parts of the uplink by parameter name.

    Returns
    -------
    Transport
        The transport.
    """
    kind: Any = registry.load_component("transport", settings.name)
    _, *names = inspect.signature(kind).parameters
    made: Transport = kind(settings, **{name: parts[name] for name in names})
    return made
