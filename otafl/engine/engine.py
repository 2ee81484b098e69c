"""The round of a stack of trials.

channel -> available devices -> cohort -> broadcast, clock -> local work, code -> admission ->
limits -> delivery -> server -> acknowledgement -> measurement -> exchange. A round is an uplink
slot. The clock determines which devices work for it and which updates are in it.
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
from otafl.downlink.base import BroadcastDelivery
from otafl.engine.assembly import EngineParts
from otafl.engine.cohorts import Cohorts
from otafl.engine.device_store import DeviceStore
from otafl.engine.local_training import LocalTraining
from otafl.engine.update import Update, acknowledge_updates, encode
from otafl.engine.workload import RoundMeans, read_costs
from otafl.topology.base import Exchange
from otafl.uplink.base import deliver

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

    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.cohorts = Cohorts(parts)
        self.sample_share = self.cohorts.sample_share
        self.num_trials, self.num_devices = self.sample_share.shape
        self.running = np.ones(self.num_trials, dtype=bool)
        self.ended = np.zeros(self.num_trials, dtype=bool)
        self.server, devices = parts.algorithm.init(parts.topology.init_streams, parts.hyper)
        cells = self.num_trials, self.num_devices, self.sample_share.device
        self.devices = DeviceStore(*cells, hands_over=True)
        self.devices.add(devices)
        self.server_memory = parts.server.init(self.server, parts.server_hyper)
        self.memory = DeviceStore(*cells)
        self.pending: Update | None = None
        self.means = RoundMeans(self.num_trials, self.num_devices, self.sample_share.device)
        self.downlink_bits = np.zeros(self.num_trials)
        self.counts = {name: np.zeros(self.num_trials) for name in UPDATE_COUNTS}
        self.link: list[c.Tensors] = []
        self.training = LocalTraining(parts, self.devices)
        self._ignores_channel = (
            parts.selection.is_channel_blind and not parts.submodels.uses_channel
        )
        self._ignores_fading = self._ignores_channel and not parts.link.transport.uses_fading
        self._on_empty: Update | None = None
        self._num_started = 0  # number of devices that began to train in this round

    @torch.inference_mode()
    def run_round(self, t: int) -> None:
        """Run one round of every running trial."""
        parts = self.parts
        available = self.find_available(t)
        parts.link.channel.set_time(t, parts.clock.get_time_s())
        channel = None if self._ignores_channel else self.draw_channel(t)
        cohort = self.select_cohort(available, t, channel)
        if channel is None:
            channel = self.draw_channel(t, cohort)
        sent = parts.link.codec.extend_broadcast(parts.algorithm.broadcast(self.server, cohort), t)
        sent = parts.link.transport.extend_broadcast(sent, t)
        broadcast = parts.downlink.send(sent, cohort, t)
        cohort, broadcast = self.start_clock(cohort, broadcast, channel, t)
        fresh, loss = self.train_and_encode(broadcast, cohort, t)
        update = self.admit(fresh, t)
        limits = self.compute_limits(update, t)
        if update is None:
            if parts.link.transport.uses_empty_slots:
                self.hold_slot(channel, t, limits)
            _, report = deliver(parts.link.transport, (), cohort, channel, t)
        else:
            received, report = self.deliver(update, channel, t, limits)
            self.update_server(received, update.cohort, t)
            self.acknowledge(update, report, t)
        overhead = parts.selection.count_overhead_symbols(available, cohort)
        if overhead is not None:
            report = replace(report, side_symbols=report.side_symbols + overhead)
        done = None
        if parts.topology.exchanges:
            done = parts.topology.exchange(self.server, self.sample_share, t, parts.algorithm)
        if done is not None and done.report is not None:
            report = done.report
        if parts.signalling is not None:
            report = parts.signalling.charge(report)
        self.measure(report, limits, cohort, broadcast, loss)
        if done is not None:
            self.apply_exchange(done)

    def draw_channel(self, t: int, cohort: c.Cohort | None = None) -> c.ChannelState:
        """Return the channel of a round, with a cohort only for its devices and late ones.

        If no component uses fading, it is a channel of no particular device.
        """
        parts = self.parts
        if self._ignores_fading:
            return self.cohorts.placeholder_channel
        if cohort is None:
            return parts.link.channel.get_state(t)
        devices = cohort.device
        if self.pending is not None:
            devices = torch.cat([devices, self.pending.cohort.device])
        return parts.link.channel.get_state_of_devices(t, devices)

    def find_available(self, t: int) -> np.ndarray | None:
        """Return the devices that could take part, [S, K] bool; None for all.

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
            self.pending = self._drop_lost(self.pending, t)
        return clock.get_available() & self.running[:, None]

    def _flatten_mask(self, mask: np.ndarray) -> Tensor:
        """Convert an array of bool into a flat tensor on the torch device."""
        return torch.from_numpy(mask.ravel()).to(self.sample_share.device)

    def select_cohort(
        self, available: np.ndarray | None, t: int, channel: c.ChannelState | None = None
    ) -> c.Cohort:
        """Return the cohort of a round, as `Cohorts.draw`."""
        version = self.server.get(c.VERSION)
        return self.cohorts.draw(available, version, t, channel)

    def start_clock(
        self, cohort: c.Cohort, broadcast: BroadcastDelivery, channel: c.ChannelState, t: int
    ) -> tuple[c.Cohort, BroadcastDelivery]:
        """Begin downlink and local work in simulated time.

        Returns cohort and broadcast of the devices that received it and can do the work within
        their budget.
        """
        if broadcast.delivered_mask is not None:
            cohort, broadcast = _take_rows(cohort, broadcast, broadcast.delivered_mask)
        workload, sizes = self.parts.workload, self.parts.submodels
        load = workload.plan_load(cohort, sizes.count_flops(cohort), broadcast, channel, t)
        can = workload.find_within_budget(cohort, load)
        if can is not None and not can.all():
            keep = torch.from_numpy(can).to(cohort.trial.device)
            cohort, broadcast = _take_rows(cohort, broadcast, keep)
            load = load.take(can)
        self._num_started = cohort.num_rows
        sizes.record_start(cohort)
        workload.start(cohort, load)
        self.parts.clock.begin(
            t,
            cohort.host_flat_index,
            load.downlink_s,
            load.compute_s,
            load.compute_w,
            np.broadcast_to(broadcast.seconds, self.num_trials),
        )
        return cohort, broadcast

    def train_and_encode(
        self, broadcast: BroadcastDelivery, cohort: c.Cohort, t: int
    ) -> tuple[Update | None, Tensor]:
        """Return the encoded update after local work (None without participants), and the loss.

        The loss is that of each row, [N].
        """
        if not cohort.num_rows:
            return None, cohort.weight
        payload, loss = self.training.train_cohort(broadcast, cohort, t)
        senders = cohort.transmitters
        update, faults = Update(senders, payload), self.parts.faults
        if faults is not None:
            sent = faults.tamper(payload, senders, t)
            update = Update(senders, sent, () if sent is payload else payload)
            valid = faults.select_finite(sent, senders)
            if valid is not None:  # modems send no other updates
                update = update.take(valid)
                rejected = np.subtract(senders.counts, update.cohort.counts)
                self.counts["rejected_updates"] += rejected
        keep = self.parts.selection.select_transmitters(
            update.payload, update.cohort, self.cohorts.num_participants
        )
        update = update if keep is None else update.take(keep)
        codec, streams = self.parts.link.codec, self.parts.streams
        coded = encode(codec, update.payload, self.memory, update.cohort, t, streams)
        if self.parts.algorithm.acknowledged_state:
            return update.replace_payload(coded), loss
        return Update(update.cohort, coded), loss

    def admit(self, update: Update | None, t: int) -> Update | None:
        """Return the updates in the slot: on time, or from an earlier round and ready now.

        None if there are none.
        """
        admitted = self.parts.clock.admit()
        if self.pending is None and admitted.sum() == self._num_started:
            return update if update is not None and update.cohort.num_rows else None
        if update is None:
            if self.pending is None:
                return None
            update = self.pending.make_empty()
        ready = self._flatten_mask(admitted)
        now, late = update.split(ready[update.cohort.flat_index])
        if self.pending is not None:
            delivered, waiting = self.pending.split(ready[self.pending.cohort.flat_index])
            now, late = now.join(delivered), waiting.join(late)
        late = self._drop_lost(late, t)
        self.pending = late if late.cohort.num_rows else None
        if not now.cohort.num_rows:
            return None
        version = self.server.get(c.VERSION)
        current = t if version is None else version[now.cohort.trial]
        cohort = replace(now.cohort, staleness=current - now.cohort.version)
        return replace(now, cohort=self.cohorts.reweight(cohort, t))

    def _drop_lost(self, update: Update, t: int) -> Update:
        """Return the updates whose devices still work on them; the others never reach a slot."""
        keep = self._flatten_mask(self.parts.clock.get_busy())[update.cohort.flat_index]
        self.acknowledge(update.take(~keep), None, t)
        return update.take(keep)

    def compute_limits(self, update: Update | None, t: int) -> c.TransmitLimits:
        """Return the bounds of the slot's transmissions, and the crashed and duplicated ones."""
        limits, faults = self.parts.workload.get_limits(), self.parts.faults
        if not self.running.all():
            limits = replace(limits, trial_mask=self._flatten_mask(self.running))
        if update is None or faults is None:
            return limits
        limits = faults.change_limits(limits, update.cohort, t)
        sent, copies = limits.sent_fraction, limits.num_copies
        if sent is not None:
            self.counts["crashed_updates"] += (sent < 1.0).sum(1).cpu().numpy()
        if copies is not None:
            self.counts["duplicated_updates"] += (copies > 1.0).sum(1).cpu().numpy()
        return limits

    def hold_slot(self, channel: c.ChannelState, t: int, limits: c.TransmitLimits) -> None:
        """Account for a slot in which no device of any trial transmits."""
        parts = self.parts
        if self._on_empty is None:  # the payload of one device has the shapes of all
            pair = torch.zeros(1, dtype=torch.int64, device=self.sample_share.device)
            counts = (1,) + (0,) * (self.num_trials - 1)
            one = c.Cohort.create(
                pair, pair, self.sample_share.new_ones(1), counts, self.num_devices
            )
            broadcast = parts.algorithm.broadcast(self.server, one)
            payload = self.training.rehearse(broadcast, one, t)
            memory = DeviceStore(self.num_trials, self.num_devices, self.sample_share.device)
            coded = encode(parts.link.codec, payload, memory, one, t, parts.streams)
            self._on_empty = Update(one, coded).make_empty()
        self.deliver(self._on_empty, channel, t, limits)

    def deliver(
        self, update: Update, channel: c.ChannelState, t: int, limits: c.TransmitLimits
    ) -> tuple[c.Received, c.LinkReport]:
        """Deliver the updates of a slot, group by group."""
        robust, slot = self.parts.robust, (update.payload, update.cohort, channel, t, limits)
        return (
            deliver(self.parts.link.transport, *slot) if robust is None else robust.deliver(*slot)
        )

    def update_server(self, received: c.Received, cohort: c.Cohort, t: int) -> None:
        """Take the algorithm's server step, undone for trials without a delivered update."""
        parts = self.parts
        decode = parts.link.codec.decode
        received = (
            decode(received)
            if parts.robust is None
            else parts.robust.aggregate(received, decode, cohort)
        )
        state = parts.algorithm.update_server(self.server, received, parts.make_context(cohort, t))
        state, memory = parts.server.step(
            self.server, state, self.server_memory, parts.server_hyper
        )
        if received.any_delivered is not None:
            state = _select_delivered(received.any_delivered, state, self.server)
            memory = _select_delivered(received.any_delivered, memory, self.server_memory)
        self.server, self.server_memory = state, memory

    def acknowledge(self, update: Update, report: c.LinkReport | None, t: int) -> None:
        """Update the state of devices that depends on whether the server received their update.

        report: of the past slot. It is None for updates that never reach one.
        """
        acknowledge_updates(self.parts, self.devices, self.memory, update, report, t)

    def measure(
        self,
        report: c.LinkReport,
        limits: c.TransmitLimits,
        cohort: c.Cohort,
        broadcast: BroadcastDelivery,
        loss: Tensor,
    ) -> None:
        """Add the costs of the round, and advance the clock past its slot."""
        parts = self.parts
        self.downlink_bits += self.running * broadcast.bits
        self.means.add(report, cohort, loss)
        num_used, airtime_s, energy_j, on_air_s = read_costs(report)
        self.counts["updates_used"] += num_used
        parts.clock.close_slot(
            airtime_s + parts.link.channel.round_trip_s,
            energy_j / parts.hardware.efficiency,
            on_air_s,
        )
        self.ended |= parts.clock.get_time_s() >= parts.duration_s
        if parts.scenario.output.save_link:  # empty if no device transmitted
            self.link.append({name: value.cpu() for name, value in report.saved_tensors.items()})

    def apply_exchange(self, done: Exchange) -> None:
        """Take the servers' state after their exchange, and advance their clocks to its end."""
        clock = self.parts.clock
        self.server = done.server
        clock.synchronise(self.parts.topology.rows.servers, done.seconds.tolist())
        self.ended |= clock.get_time_s() >= self.parts.duration_s

    def state_dict(self) -> dict[str, Any]:
        """Return also the state of devices, pending updates and parts."""
        pending = None if self.pending is None else self.pending.state_dict()
        parts = {name: part.state_dict() for name, part in self._list_stateful().items()}
        return {**super().state_dict(), "pending": pending, "parts": parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        pending = state["pending"]
        self.pending = None if pending is None else Update.from_state_dict(pending)
        for name, part in self._list_stateful().items():
            part.load_state_dict(state["parts"][name])

    def _list_stateful(self) -> dict[str, Stateful]:
        """Return the parts that change from round to round."""
        parts = self.parts
        return {
            "devices": self.devices,
            "memory": self.memory,
            "means": self.means,
            "algorithm": parts.algorithm,
            "clock": parts.clock,
            "codec": parts.link.codec,
            "transport": parts.link.transport,
            **({} if parts.robust is None else {"robust": parts.robust}),
            "selection": parts.selection,
            "sizes": parts.submodels,
            "topology": parts.topology,
            "workload": parts.workload,
        }

    def stop(self, trial: int) -> None:
        """End a trial; the others continue."""
        self.running[trial] = False
        self.parts.clock.stop(trial)
        self.cohorts.forget()


def _take_rows(
    cohort: c.Cohort, broadcast: BroadcastDelivery, keep: Tensor
) -> tuple[c.Cohort, BroadcastDelivery]:
    """Return the rows [N] bool to keep, of a cohort and its broadcast."""
    return cohort.take(keep.nonzero().squeeze(1)), broadcast.select_rows(keep)


def _select_delivered(any_delivered: Tensor, new: c.Tensors, old: c.Tensors) -> c.Tensors:
    """Select new tensors [S, *shape] for trials with a delivered update [S], old ones otherwise."""
    return {
        name: torch.where(c.unsqueeze_like(any_delivered, block), block, old[name])
        for name, block in new.items()
    }
