"""Simulation of only the uplink, for a user's own training loop.

`over_the_air` simulates one aggregation, `WirelessUplink` the aggregations of a loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Never

import numpy as np
import torch
from torch import Tensor

from otafl import uplink as transports
from otafl.core.contracts import Cohort, Context, Group, Link, LinkReport, Received, Tensors
from otafl.core.errors import UserError
from otafl.core.registry import load_component
from otafl.core.rng import Streams
from otafl.core.suggestions import make_unknown_name_error
from otafl.engine.device_store import DeviceStore
from otafl.engine.update import acknowledge_memory, encode, get_delivered_masks
from otafl.own_loop.update_kinds import OwnDelivery, Updates, UplinkReport, UplinkTotals
from otafl.power.custom import CustomPower
from otafl.scenario import load_scenario
from otafl.uplink.base import deliver
from otafl.uplink.report import Signalling

Choice = str | Mapping[str, Any]
"""A component: its name, or a mapping with its settings."""

SCALARS = ("h", "p", "c", "eta")
"""What a report has of transports that superpose."""

PolicyFunction = Callable[[Link], tuple[Tensor, Tensor]]


class WirelessUplink:
    """Uplink of K devices for the rounds of a training loop.

        uplink = otafl.WirelessUplink(10, channel="rayleigh", power="gbma", snr_db=10)
        mean, report = uplink(round, updates)

    Between calls it keeps the codec memory of each device (error feedback) and the state of the
    power policy (long-term budgets). Fading and noise depend only on the round. The first call
    fixes torch device, precision and shapes. `totals` is the cost of all calls.

    Parameters
    ----------
    devices : int
        Number of devices, K.
    channel, power : str or mapping
        Name of a component, or a mapping with its settings, as in the sections of a scenario.
        `power` may also be a user-defined function or module, policy(link) -> (p, eta), as in
        `otafl.power.custom`.
    snr_db : float, optional
        Budget on the mean symbol power over the receiver's noise variance, in dB.
    csi, receiver : str or mapping
        Components, given as `channel` is.
    impairments : mapping, optional
        Section of a scenario.
    codec, transport : str or mapping
        Components, given as `channel` is.
    signalling : mapping, optional
        Section of a scenario.
    seed, trial : int, default 0
        Root seed and trial number, which choose all draws. They equal those of a scenario.
    caller : str, default "WirelessUplink"
        Name at the start of messages.
    **others : Never
        No other settings exist; a misspelt name raises UserError.

    Raises
    ------
    UserError
        If a setting is not valid.
    """

    def __init__(
        self,
        devices: int,
        *,
        channel: Choice = "rayleigh",
        power: Choice | PolicyFunction = "gbma",
        snr_db: float | None = None,
        csi: Choice = "perfect",
        receiver: Choice = "auto",
        impairments: Mapping[str, Any] | None = None,
        codec: Choice = "identity",
        transport: Choice = "over_the_air",
        signalling: Mapping[str, Any] | None = None,
        seed: int = 0,
        trial: int = 0,
        caller: str = "WirelessUplink",
        **others: Never,
    ) -> None:
        """Set up the uplink."""
        for name in others:
            settings = inspect.signature(WirelessUplink).parameters
            known = [one for one in settings if one not in ("devices", "caller", "others")]
            raise make_unknown_name_error(f"{caller}: {name}", "a setting", name, known)
        self._caller, self._trial = caller, _check_integer(trial, "trial", caller)
        self._policy, stated = None, power
        if callable(power) and not inspect.isclass(power):
            called = getattr(power, "__name__", type(power).__name__)
            self._policy = CustomPower.model_construct(name=called).build(power)
            stated = "ci" if self._policy.is_inversion else "full"  # as far as other sections ask
        section = {"name": channel} if isinstance(channel, str) else dict(channel)
        self._scenario = load_scenario(
            {
                "name": "uplink",
                "channel": section if snr_db is None else {**section, "snr_db": snr_db},
                "power": stated,
                "csi": csi,
                "receiver": receiver,
                "impairments": impairments or {},
                "codec": codec,
                "transport": transport,
                "signalling": signalling or {},
                "devices": {"count": devices},
                "seed": seed,
                "output": {"save_link": True},
            }
        )
        self.devices: int = self._scenario.devices.count
        self.totals = UplinkTotals(0, 0.0, 0.0, 0.0, 0.0, np.zeros(self.devices))
        self._first: Tensors | None = None

    @property
    def has_per_device(self) -> bool:
        """Return whether the server gets each device's update, not only their mean."""
        return "each" in load_component("transport", self._scenario.transport.name).provides

    def __call__(
        self, round: int, updates: Any, weights: Any = None, senders: Any = None
    ) -> tuple[Any, UplinkReport]:
        """Estimate the weighted mean of a round's updates.

        Gradients pass to updates that are tensors and to a user-defined policy, but not through
        codec memory.

        Parameters
        ----------
        round : int
            Number of the round, from 0. It chooses fading and noise.
        updates : array, tensor, mapping or list of mappings
            [n, ...] floating-point NumPy array or torch tensor, one row per device. A mapping name
            -> [n, *shape] is one payload, as is a list of n state_dicts. Entries of whole numbers
            and truth values (`num_batches_tracked`) do not pass the uplink. The server gets their
            weighted mean over the transmitters, rounded, without error and without cost.
        weights : array, optional
            [n] weights of the mean, equal by default.
        senders : array, optional
            [n] int, the device of each row, from 0 to K - 1. By default row k is device k.

        Returns
        -------
        mean : array, tensor or mapping
            [*shape], a mapping of such, or a state_dict, in the kinds, dtypes and on the torch
            devices of the updates. If no update was delivered, it and `report.participants` are 0.
        report : UplinkReport
            Cost and error of the aggregation.

        Raises
        ------
        UserError
            If updates, weights or senders are not valid, or a transmitter's update holds NaN or
            infinity.
        """
        delivery = self.deliver(round, updates, weights, senders)
        return delivery.mean, delivery.report

    def deliver(
        self, round: int, updates: Any, weights: Any = None, senders: Any = None
    ) -> OwnDelivery:
        """Transmit as `__call__` does, and return single updates where the transport has them.

        Parameters
        ----------
        round : int
            Number of the round, from 0.
        updates : array, tensor, mapping or list of mappings
            Updates, as for `__call__`.
        weights : array, optional
            [n] weights of the mean, equal by default.
        senders : array, optional
            Device of each row, as for `__call__`.

        Returns
        -------
        OwnDelivery
            The mean, the report and the single updates.
        """
        round = _check_integer(round, "round", self._caller)
        sent = Updates.read(updates, self._caller)
        weight = _check_weights(weights, sent.count, self._caller)
        device = self._list_transmitters(senders, sent.count)
        share = weight / weight.sum()
        order = np.argsort(device, kind="stable")  # a cohort's rows are ordered by device
        ordered = sent if (order == np.arange(len(order))).all() else sent.take(order)
        for name, row in ordered.find_not_finite():
            raise UserError(
                f"{self._caller}: '{name}' of device {device[order][row]} holds NaN or infinity, "
                "which would reach the mean of all; give the other devices' rows alone, and to a "
                "WirelessUplink their numbers as senders"
            )
        self._start(ordered.tensors)
        received, link_report = self._send(ordered.tensors, device[order], share[order], round)
        report = self._report(link_report)
        old = self.totals
        sums = {
            name: vars(old)[name] + vars(report)[name] for name in vars(old) if name != "rounds"
        }
        self.totals = UplinkTotals(rounds=old.rounds + 1, **sums)
        each = None
        if received.per_device is not None:
            # the received rows of the cohort, in the given order
            places = np.argsort(order, kind="stable")
            delivered = np.ones(len(places), dtype=bool)
            if received.delivered_mask is not None and received.delivered_mask[0] is not None:
                delivered = _to_plain(received.delivered_mask[0])
            own = np.eye(len(places))
            each = [
                ordered.to_input_kind(
                    {name: block[k] for name, block in received.per_device[0].items()}, own[k]
                )
                if delivered[k]
                else None
                for k in places.tolist()
            ]
        mean = {name: block[0] for name, block in received.mean[0].items()}
        if received.any_delivered is not None and not bool(received.any_delivered[0]):
            mean = {name: torch.zeros_like(block) for name, block in mean.items()}
        return OwnDelivery(sent.to_input_kind(mean, share), report, each)

    def _list_transmitters(self, senders: Any, count: int) -> np.ndarray:
        """Return the device [n] of each row."""
        if senders is None:
            if count != self.devices:
                raise UserError(
                    f"{self._caller}: got {count} updates of {self.devices} devices; say which by "
                    "senders"
                )
            return np.arange(self.devices)
        try:
            given = np.asarray(senders.cpu() if isinstance(senders, Tensor) else senders)
        except (TypeError, ValueError):
            given = np.array(None)
        if given.dtype.kind in "iu" and given.shape == (count,):
            inside = ((given >= 0) & (given < self.devices)).all()
            if inside and len(np.unique(given)) == count:
                return given.astype(np.int64)
        raise UserError(
            f"{self._caller}: senders must be the device of each of the {count} updates, different "
            f"whole numbers from 0 to {self.devices - 1}; got {senders!r}"
        )

    def _start(self, blocks: Tensors) -> None:
        """Build the link for the first updates; later ones must be like them."""
        one = {name: block[:1] for name, block in blocks.items()}
        first = next(iter(one.values()))
        if self._first is None:
            self._first = {name: block.detach() for name, block in one.items()}
            self._streams = Streams([self._scenario.seed], [self._trial], first.device, first.dtype)
            self._link = transports.build(
                [self._scenario], self.devices, self._streams, save_gram=False, policy=self._policy
            )
            self._memory = DeviceStore(1, self.devices, first.device)
            self._signalling = Signalling([self._scenario.signalling], self._link.budget)
            return
        now, before = _describe_tensors(one), _describe_tensors(self._first)
        for name in sorted({*now, *before}):
            if now.get(name) != before.get(name):
                raise UserError(
                    f"{self._caller}: '{name}' is {now.get(name, 'missing')}, and in the first "
                    f"call was {before.get(name, 'missing')}; an uplink is for updates of one "
                    "model on one torch device"
                )

    def _send(
        self, blocks: Tensors, device: np.ndarray, share: np.ndarray, round: int
    ) -> tuple[Received, LinkReport]:
        """Encode, deliver and decode a payload, as a round of the engine does."""
        first = next(iter(blocks.values()))
        rows = torch.from_numpy(device).to(first.device)
        weight = torch.from_numpy(share).to(first)
        trial, counts = torch.zeros_like(rows), (len(device),)
        cohort = Cohort.create(trial, rows, weight, counts, self.devices, round)
        link, payload = self._link, (Group(blocks),)
        coded = encode(link.codec, payload, self._memory, cohort, round, self._streams)
        state = link.channel.get_state(round)
        received, report = deliver(link.transport, coded, cohort, state, round)
        if link.codec.has_memory:
            context = Context(cohort, link.codec.hyper, self._streams, round)
            delivered_masks = get_delivered_masks(report, coded, cohort)
            acknowledge_memory(link.codec, coded, self._memory, delivered_masks, context)
        return link.codec.decode(received), self._signalling.charge(report)

    def _report(self, report: LinkReport) -> UplinkReport:
        said, saved = vars(report), report.saved_tensors
        names = ("nmse", "symbols", "bits", "side_symbols", "airtime_s")
        numbers: dict[str, Any] = {name: float(_to_plain(said[name][0])) for name in names}
        scalars: dict[str, Any] = {"active": _to_plain(report.power[0]) > 0}
        if saved:
            scalars = {name: _to_plain(saved[f"{name}/0"])[0] for name in (*scalars, *SCALARS)}
            if len(scalars["eta"]) == 1:
                scalars = {name: value[0] for name, value in scalars.items()}
                scalars["eta"] = float(scalars["eta"])
        return UplinkReport(
            **numbers,
            participants=int(report.participants[0]),
            energy_j=_to_plain(report.energy_j[0]),
            tx_power_w=_to_plain(report.power[0]) * float(self._link.budget.unit_power_w[0]),
            **scalars,
        )


def over_the_air(
    updates: Any, *, weights: Any = None, round: int = 0, **settings: Any
) -> tuple[Any, UplinkReport]:
    """Aggregate the updates of K devices once over a simulated uplink.

    `WirelessUplink` keeps the state between the rounds of a loop.

    Parameters
    ----------
    updates : array, tensor, dict or list of dicts
        [K, *shape] floating-point NumPy array or torch tensor. A dict of these is one payload, as
        is a list of state_dicts.
    weights : sequence of float, optional
        [K] weights of the mean, equal by default.
    round : int, default 0
        Number of the round. With the seed it chooses the draws, so pass round=t in round t of a
        loop.
    **settings : Any
        Settings of `WirelessUplink`: channel, power, snr_db, csi, receiver, impairments, codec,
        transport, signalling, seed, trial.

    Returns
    -------
    mean : array, tensor or dict
        Estimate of the weighted mean, [*shape] in the kind, dtype and on the device of the updates.
        Gradients pass to updates that are tensors and to the parameters of a user-defined policy.
    report : UplinkReport
        Cost and error of the aggregation, in plain numbers.

    Raises
    ------
    UserError
        If a setting or a shape is not valid.
    """
    devices = Updates.read(updates, "over_the_air").count
    return WirelessUplink(devices, caller="over_the_air", **settings)(round, updates, weights)


def _check_integer(value: Any, name: str, caller: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise UserError(f"{caller}: {name} must be a whole number from 0 on; got {value!r}")
    return int(value)


def _check_weights(weights: Any, count: int, caller: str) -> np.ndarray:
    """Return the weights [n] float64."""
    if weights is None:
        return np.ones(count)
    try:
        plain = weights.detach().cpu() if isinstance(weights, Tensor) else weights
        weight = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError):
        weight = np.empty(0)
    good = weight.shape == (count,) and bool((np.isfinite(weight) & (weight >= 0)).all())
    if not good or not weight.sum() > 0:
        raise UserError(
            f"{caller}: weights must be {count} finite non-negative numbers, not all zero; got "
            f"{weights!r}"
        )
    return weight


def _describe_tensors(blocks: Tensors) -> dict[str, str]:
    """Describe each tensor: precision, shape of a row and torch device."""
    return {
        name: f"{str(block.dtype).removeprefix('torch.')} {list(block.shape[1:])} on {block.device}"
        for name, block in blocks.items()
    }


def _to_plain(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy()
