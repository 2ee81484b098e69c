"""The round of a stack of trials.

channel -> plan -> select -> local work -> encode -> admit -> transport -> combine -> measure. A
round is an uplink slot. The clock determines which devices work for it and which updates are in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.core.stateful import Stateful
from otafl.downlink.base import Arrival
from otafl.engine import settling
from otafl.engine.assembly import Parts
from otafl.engine.cohorts import Cohorts
from otafl.engine.device_store import DeviceStore
from otafl.engine.local_training import LocalTraining
from otafl.engine.pending import Update
from otafl.engine.round_means import RoundMeans
from otafl.engine.stacking import encode
from otafl.topology.base import Exchange
from otafl.uplink.base import deliver
from otafl.uplink.delivery import Tally

UPDATE_COUNTS = ("updates_used", "crashed_updates", "rejected_updates", "duplicated_updates")


class Engine(Stateful):
    """A stack of S trials over K devices: the state of servers and devices, and their rounds.

    For trials with several servers, each server counts as a trial here.

    server: tensors [S, *shape]. devices, memory: state of devices and their codecs. running: [S]
    bool on the host, False for a stopped trial. ended: [S] bool, True for a trial without time or
    devices left. counts: name -> [S] updates so far.
    """

    state_attrs: ClassVar = (
        "running",
        "ended",
        "server",
        "server_memory",
        "downlink_bits",
        "counts",
        "link",
    )

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.cohorts = Cohorts(parts)
        self.share = self.cohorts.share
        self.trials, self.num_devices = self.share.shape
        self.running = np.ones(self.trials, dtype=bool)
        self.ended = np.zeros(self.trials, dtype=bool)
        self.server, devices = parts.algorithm.init(parts.topology.start, parts.hyper)
        place = parts.scenario.engine.device_state
        cells = self.trials, self.num_devices, self.share.device
        self.devices = DeviceStore(*cells, place, hands_over=True)
        self.devices.add(devices)
        self.server_memory = parts.server.init(self.server, parts.server_hyper)
        self.memory = DeviceStore(*cells)
        self.pending: Update | None = None
        self.means = RoundMeans(self.trials, self.num_devices, self.share.device)
        self.downlink_bits = np.zeros(self.trials)
        self.counts = {name: np.zeros(self.trials) for name in UPDATE_COUNTS}
        self.link: list[c.Tensors] = []
        self.training = LocalTraining(parts, self.devices)
        self._blind = parts.selection.blind and not parts.sizes.by_channel
        self._deaf = self._blind and not parts.link.transport.uses_fading
        self._on_empty: Update | None = None
        self._began = 0  # number of devices that began to train in this round

    @torch.inference_mode()
    def round(self, t: int) -> None:
        """Run one round of every running trial."""
        parts = self.parts
        channel = None if self._blind else self.channel(t)
        available = self.plan(t)
        cohort = self.select(available, t, channel)
        if channel is None:
            channel = self.channel(t, cohort)
        broadcast = parts.downlink.send(parts.algorithm.broadcast(self.server, cohort), cohort, t)
        cohort, broadcast = self.start_clock(cohort, broadcast, channel, t)
        fresh, loss = self.work(broadcast, cohort, t)
        update = self.admit(fresh, t)
        limits = self.limits(update, t)
        if update is None:
            if parts.link.transport.uses_empty_slots:
                self.hold(channel, t, limits)
            report = Tally(parts.link.budget, self.num_devices).report()
        else:
            received, report = deliver(
                parts.link.transport, update.payload, update.cohort, channel, t, limits
            )
            self.combine(received, update.cohort, t)
            self.acknowledge(update, report, t)
        told = parts.selection.side_symbols(available, cohort)
        if told is not None:
            report = replace(report, side_symbols=report.side_symbols + told)
        done = parts.topology.exchange(self.server, self.share, t, parts.algorithm)
        if done is not None and done.report is not None:
            report = done.report
        self.measure(parts.signalling.charge(report), limits, cohort, broadcast, loss)
        if done is not None:
            self.exchange(done)

    def channel(self, t: int, cohort: c.Cohort | None = None) -> c.ChannelState:
        """Return the channel of a round, with a cohort only for its devices and late ones.

        If no component uses fading, it is a channel of no particular device.
        """
        parts = self.parts
        if self._deaf:
            return self.cohorts.outline
        if cohort is None:
            return parts.faults.fade(parts.link.channel.state(t), t)
        devices = cohort.device
        if self.pending is not None:
            devices = torch.cat([devices, self.pending.cohort.device])
        return parts.faults.fade(parts.link.channel.get_state_of_devices(t, devices), t)

    def plan(self, t: int) -> np.ndarray | None:
        """Return the devices that could take part, [S, K] bool; None for all, or if they are asked.

        If no device is available, the clock advances to the next arrival. A trial without any
        further arrival has ended.
        """
        clock = self.parts.clock
        for trial in clock.wait_for_devices():
            clock.stop(trial)
            self.ended[trial] = True
        if self.pending is None and self.running.all() and clock.are_all_available():
            return None
        if self.pending is not None:  # without updates lost since the last slot
            self.pending = self._not_lost(self.pending, t)
        if self.cohorts.must_ask:
            return None
        return clock.available() & self.running[:, None]

    def _of_cells(self, chosen: np.ndarray) -> Tensor:
        """Convert an array of bool into a flat tensor on the torch device."""
        return torch.from_numpy(chosen.ravel()).to(self.share.device)

    def select(
        self, available: np.ndarray | None, t: int, channel: c.ChannelState | None = None
    ) -> c.Cohort:
        """Return the cohort of a round, as `Cohorts.drawn`."""
        version = self.parts.algorithm.version(self.server)
        return self.cohorts.drawn(available, self.running, version, t, channel)

    def start_clock(
        self, cohort: c.Cohort, broadcast: Arrival, channel: c.ChannelState, t: int
    ) -> tuple[c.Cohort, Arrival]:
        """Begin downlink and local work in simulated time.

        Returns cohort and broadcast of the devices that received it and can do the work within
        their budget.
        """
        if broadcast.heard is not None:
            cohort, broadcast = _taken(cohort, broadcast, broadcast.heard)
        workload, sizes = self.parts.workload, self.parts.sizes
        load = workload.of(cohort, sizes.flops(cohort), broadcast, channel, t)
        can = workload.affordable(cohort, load)
        if can is not None and not can.all():
            keep = torch.from_numpy(can).to(cohort.trial.device)
            cohort, broadcast = _taken(cohort, broadcast, keep)
            load = load.take(can)
        self._began = cohort.size
        sizes.count(cohort)
        workload.begin(cohort, load)
        self.parts.clock.begin(
            t,
            cohort.participants,
            load.downlink_s,
            load.compute_s,
            load.compute_w,
            broadcast.seconds,
        )
        return cohort, broadcast

    def work(self, broadcast: Arrival, cohort: c.Cohort, t: int) -> tuple[Update | None, Tensor]:
        """Return the encoded update after local work (None without participants), and the loss.

        The loss is that of each row, [N].
        """
        if not cohort.size:
            return None, cohort.weight
        payload, loss = self.local_work(broadcast, cohort, t)
        senders = cohort.senders
        sent = self.parts.faults.tamper(payload, senders, t)
        made = () if sent is payload else payload
        update = self.chosen(self.sound(Update(senders, sent, made)))
        coded = self.encode(update.payload, update.cohort, t)
        has_on_ack = self.parts.algorithm.has_on_ack
        return (update.coded(coded) if has_on_ack else Update(update.cohort, coded)), loss

    def sound(self, update: Update) -> Update:
        """Return the updates that the modems accept."""
        keep = self.parts.faults.refuse(update.payload, update.cohort)
        if keep is None:
            return update
        kept = update.take(keep)
        self.counts["rejected_updates"] += np.subtract(update.cohort.counts, kept.cohort.counts)
        return kept

    def chosen(self, update: Update) -> Update:
        """Return the updates that a selection by updates accepts."""
        keep = self.parts.selection.senders(update.payload, update.cohort, self.cohorts.wanted)
        return update if keep is None else update.take(keep)

    def local_work(
        self, broadcast: c.Broadcast | Arrival, cohort: c.Cohort, t: int
    ) -> tuple[c.Payload, Tensor]:
        """Train every row of the cohort.

        Returns the payload of the transmitting rows, in their order, and the loss [N] of all.
        """
        return self.training.of(broadcast, cohort, t)

    def first_work(self) -> tuple[Arrival, c.Cohort]:
        """Return the inputs of local work in the first round: the broadcast, and the cohort."""
        channel = None if self._blind else self.channel(0)
        cohort = self.select(self.plan(0), 0, channel)
        sent = self.parts.algorithm.broadcast(self.server, cohort)
        return self.parts.downlink.send(sent, cohort, 0), cohort

    def encode(self, payload: c.Payload, cohort: c.Cohort, t: int) -> c.Payload:
        """Encode the payload of the cohort's rows."""
        parts = self.parts
        return encode(parts.link.codec, payload, self.memory, cohort, t, parts.streams)

    def admit(self, update: Update | None, t: int) -> Update | None:
        """Return the updates in the slot: on time, or from an earlier round and ready now.

        None if there are none.
        """
        admitted = self.parts.clock.admit()
        if self.pending is None and admitted.sum() == self._began:
            return update if update is not None and update.cohort.size else None
        if update is None:
            if self.pending is None:
                return None
            update = self.pending.nobody()
        ready = self._of_cells(admitted)
        now, late = update.split(ready[update.cohort.cell])
        if self.pending is not None:
            delivered, waiting = self.pending.split(ready[self.pending.cohort.cell])
            now, late = now.join(delivered), waiting.join(late)
        late = self._not_lost(late, t)
        self.pending = late if late.cohort.size else None
        if not now.cohort.size:
            return None
        version = self.parts.algorithm.version(self.server)
        current = t if version is None else version[now.cohort.trial]
        cohort = replace(now.cohort, staleness=current - now.cohort.version)
        return replace(now, cohort=self.cohorts.weighted(cohort, t))

    def _not_lost(self, update: Update, t: int) -> Update:
        """Return the updates whose devices still work on them; the others never reach a slot."""
        keep = self._of_cells(self.parts.clock.at_work())[update.cohort.cell]
        self.acknowledge(update.take(~keep), None, t)
        return update.take(keep)

    def limits(self, update: Update | None, t: int) -> c.TransmitLimits:
        """Return the bounds of the slot's transmissions, and the crashed and duplicated ones."""
        limits, faults = self.parts.workload.limits(), self.parts.faults
        if not self.running.all():
            limits = replace(limits, running=self._of_cells(self.running))
        if update is None:
            return limits
        sent, copies = faults.crashes(update.cohort, t), faults.copies(update.cohort, t)
        if sent is not None:
            self.counts["crashed_updates"] += (sent < 1.0).sum(1).cpu().numpy()
        if copies is not None:
            self.counts["duplicated_updates"] += (copies > 1.0).sum(1).cpu().numpy()
        return replace(limits, sent=sent, copies=copies)

    def hold(self, channel: c.ChannelState, t: int, limits: c.TransmitLimits) -> None:
        """Account for a slot in which no device of any trial transmits."""
        parts = self.parts
        if self._on_empty is None:  # the payload of one device has the shapes of all
            pair = torch.zeros(1, dtype=torch.int64, device=self.share.device)
            counts = (1,) + (0,) * (self.trials - 1)
            one = c.Cohort.fresh(pair, pair, self.share.new_ones(1), counts, self.num_devices)
            broadcast = parts.algorithm.broadcast(self.server, one)
            _, (_, payload, _) = self.training.train(broadcast, one, 0, 1, t)
            memory = DeviceStore(self.trials, self.num_devices, self.share.device)
            coded = encode(parts.link.codec, payload, memory, one, t, parts.streams)
            self._on_empty = Update(one, coded).nobody()
        nobody = self._on_empty
        deliver(parts.link.transport, nobody.payload, nobody.cohort, channel, t, limits)

    def combine(self, received: c.Received, cohort: c.Cohort, t: int) -> None:
        """Take the algorithm's server step, undone for trials without a delivered update."""
        parts = self.parts
        received = parts.link.codec.decode(received)
        state = parts.algorithm.combine(self.server, received, parts.context(cohort, t))
        state, memory = parts.server.step(
            self.server, state, self.server_memory, parts.server_hyper
        )
        if received.any_delivered is not None:
            state = _of_alive(received.any_delivered, state, self.server)
            memory = _of_alive(received.any_delivered, memory, self.server_memory)
        self.server, self.server_memory = state, memory

    def acknowledge(self, update: Update, report: c.LinkReport | None, t: int) -> None:
        """Update the state of devices that depends on whether the server received their update.

        report: of the past slot. It is None for updates that never reach one.
        """
        settling.settle(self.parts, self.devices, self.memory, update, report, t)

    def measure(
        self,
        report: c.LinkReport,
        limits: c.TransmitLimits,
        cohort: c.Cohort,
        broadcast: Arrival,
        loss: Tensor,
    ) -> None:
        """Add the costs of the round, and advance the clock past its slot."""
        parts = self.parts
        self.downlink_bits += self.running * broadcast.bits
        self.means.add(report, cohort, loss)
        self.counts["updates_used"] += report.participants.double().cpu().numpy()
        parts.clock.close_slot(
            report.airtime_s.double().cpu().numpy(),
            report.energy_j.double().cpu().numpy() / parts.hardware.efficiency,
            report.on_air_s.double().cpu().numpy(),
            None if limits.sent is None else (limits.sent < 1.0).cpu().numpy(),
            parts.faults.downtime_s,
        )
        self.ended |= parts.clock.now() >= parts.duration_s
        if parts.scenario.output.save_link:  # empty if no device transmitted
            self.link.append({name: value.cpu() for name, value in report.saved.items()})

    def exchange(self, done: Exchange) -> None:
        """Take the servers' state after their exchange, and advance their clocks to its end."""
        clock = self.parts.clock
        self.server = done.server
        clock.meet(self.parts.topology.rows.servers, done.seconds.tolist())
        self.ended |= clock.now() >= self.parts.duration_s

    def state_dict(self) -> dict[str, Any]:
        """Return also the state of devices, pending updates and parts."""
        pending = None if self.pending is None else self.pending.plain()
        parts = {name: part.state_dict() for name, part in self._list_stateful().items()}
        return {**super().state_dict(), "pending": pending, "parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        pending = state["pending"]
        self.pending = None if pending is None else Update.of_plain(pending)
        for name, part in self._list_stateful().items():
            part.load_state_dict(state["parts"][name])

    def _list_stateful(self) -> dict[str, Stateful]:
        """Return the parts that change from round to round; the clock has a journal instead."""
        parts = self.parts
        return {
            "devices": self.devices,
            "memory": self.memory,
            "means": self.means,
            "algorithm": parts.algorithm,
            "codec": parts.link.codec,
            "transport": parts.link.transport,
            "selection": parts.selection,
            "sizes": parts.sizes,
            "topology": parts.topology,
            "workload": parts.workload,
        }

    def stop(self, trial: int) -> None:
        """End a trial; the others continue."""
        self.running[trial] = False
        self.parts.clock.stop(trial)
        self.cohorts.forget()


def _taken(cohort: c.Cohort, broadcast: Arrival, keep: Tensor) -> tuple[c.Cohort, Arrival]:
    """Return the rows [N] bool to keep, of a cohort and its broadcast."""
    return cohort.take(keep.nonzero().squeeze(1)), broadcast.taken(keep)


def _of_alive(any_delivered: Tensor, new: c.Tensors, old: c.Tensors) -> c.Tensors:
    """Select new tensors [S, *shape] for trials with a delivered update [S], old ones otherwise."""
    return {
        name: torch.where(c.column(any_delivered, block), block, old[name])
        for name, block in new.items()
    }
