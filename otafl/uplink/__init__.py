"""The uplink, which carries the updates of a round to the server, with all its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl import channels, codecs, csi
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
from otafl.uplink.base import Parts, Transport
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.transmission import Alignment


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
    antennas = channel.get_large_scale_state(0).h.shape[2]
    receiver = scenario.receiver.match_policy(policy, antennas)
    jammer = compute_jammer_power([row.faults for row in rows], streams)
    growth = [getattr(row.channel, "snr_growth", 0.0) for row in rows]
    impairments = Impairments([row.impairments for row in rows], jammer, streams, growth)
    codec = codecs.build([row.codec for row in rows], streams)
    alignment = Alignment(
        csi=known,
        receiver=receiver,
        policy=policy,
        statistics=compute_statistics(channel, known, receiver, budget, impairments.known_noise),
        hyper=build_hyper([row.power for row in rows], streams),
        impairments=impairments,
    )
    parts = Parts(
        budget=budget,
        alignment=alignment,
        codec=codec,
        streams=streams,
        hyper=build_hyper([row.transport for row in rows], streams),
        privacy=privacy.build(rows, policy, devices, streams, mains),
        neighbours=neighbours(channel),
        save_link=scenario.output.save_link,
        save_gram=save_gram,
    )
    kind = registry.load_component("transport", scenario.transport.name)
    transport: Transport = kind(scenario.transport, parts)
    return Uplink(channel, budget, codec, transport, known)
