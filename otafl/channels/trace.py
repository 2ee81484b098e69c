"""Replay measured or simulated channels from a file.

A trace is a NetCDF-4 file (any HDF5 file with these data sets at its root will do):

    attributes    schema         "otafl-trace-1"
                  carrier_hz     carrier frequency
                  bandwidth_hz   band that h covers
    either        h_real, h_imag (round, device, antenna, group): frequency responses at the centres
                                 of equal groups of sub-carriers
    or            a_real, a_imag (round, device, antenna, path): impulse responses, complex
                                 amplitudes at the carrier
                  tau_s          (round, device, path) or (device, path): their delays in seconds
    optional      gain           (round, device) or (device): linear large-scale power gains, and h
                                 or a has a mean power of one; without it, a device's gain is the
                                 mean power of its responses over the file, which is taken out of
                                 them

A run's devices are the file's first ones; a run that is longer than the file starts it again.
Impulse responses are evaluated on the run's own bandwidth. The file is held in memory. `export`
and `export_impulse_responses` write such files.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.channels.base import Channel, ChannelSettings
from otafl.channels.fading import block_state
from otafl.channels.ofdm import delay_rotations, frequency_response, group_frequencies
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.errors import UserError
from otafl.core.rng import purpose

START = purpose("trace_start", __name__)

SCHEMA = "otafl-trace-1"


@dataclass(frozen=True)
class Responses:
    """Hold a file of R rounds and K devices. response: [R, K, A, F], or [R, K, A, L] with delay_s
    [R or 1, K, L]. gain: [R or 1, K], or None."""

    response: np.ndarray
    delay_s: np.ndarray | None
    gain: np.ndarray | None
    bandwidth_hz: float


class Trace(Channel):
    """Give h [S, K, A, B, F] complex; E|h|^2 = 1 over the file's rounds, antennas and groups."""

    class Settings(ChannelSettings):
        example: ClassVar = {"channel.path": "responses.nc"}

        name: Literal["trace"] = "trace"
        path: str = Field(
            min_length=1,
            description="NetCDF-4 or HDF5 file; relative paths count from the working directory",
        )
        start: Literal["zero", "per_trial"] = Field(
            "per_trial",
            description="zero: round 0 is the file's first round; per_trial: each trial starts at "
            "a random round of the file. Past its last round the file starts again, and before "
            "its first, where a belated estimate looks, is its last",
        )
        gains: Literal["relative", "absolute"] = Field(
            "relative",
            description="relative: the file's gains over their mean, so that snr_db is the mean "
            "SNR; absolute: they are path gains, and budgets are tx_power_dbm over thermal noise",
        )
        subcarrier_groups: int | None = Field(
            None,
            ge=1,
            description="groups of sub-carriers over bandwidth_hz that impulse responses are "
            "evaluated on (default 1); frequency responses have their own",
        )
        block_symbols: int | None = Field(
            None,
            ge=1,
            description="channel uses of a coherence block; the blocks of a payload then take the "
            "file's rounds from its own on. Without it, the channel lasts for the whole payload",
        )

        @model_validator(mode="after")
        def _one_gain(self) -> Trace.Settings:
            given = next(
                (key for key in ("snr_db", "path_loss_db") if getattr(self, key) is not None), ""
            )
            if self.gains == "absolute" and given:
                raise ValueError(
                    f"gains 'absolute' takes the path loss from the file; leave {given} out, or "
                    "set gains to relative"
                )
            return self

        @property
        def physical(self) -> bool:
            return self.gains == "absolute" or super().physical

    settings: Settings

    def prepare(self) -> None:
        settings, streams, devices = self.settings, self.streams, self.devices
        file = read(settings.path)
        rounds, known = file.response.shape[:2]
        if known < devices:
            raise UserError(
                f"channel.path: '{settings.path}' has {known} devices and the scenario {devices}; "
                f"devices.count of {known} or less would do"
            )
        place, ctype = streams.device, streams.dtype.to_complex()
        self._response = torch.from_numpy(file.response[:, :devices]).to(place, ctype)
        self._frequency = _frequencies(settings, file, self.budget)
        self._delay = None
        if file.delay_s is not None:
            delay = torch.from_numpy(file.delay_s[:, :devices]).to(place, torch.float64)
            self._delay = delay.expand(rounds, -1, -1)
        gain = self._take_out_gain() if file.gain is None else file.gain[:, :devices]
        large_scale = torch.as_tensor(gain).to(place, torch.float64).expand(rounds, -1)
        if not bool(large_scale.gt(0).all()):
            device = int(large_scale.le(0).any(0).nonzero()[0])
            raise UserError(
                f"channel.path: device {device} of '{settings.path}' has a gain of zero"
            )
        if settings.gains == "relative":
            large_scale = large_scale / large_scale.mean()
        self._gain = large_scale.to(streams.dtype)
        self._rounds = rounds
        self._start = torch.zeros(streams.size, dtype=torch.int64, device=place)
        if settings.start == "per_trial":
            self._start = (streams.uniform(START, 0, ()) * rounds).long()

    def state(self, round: int) -> ChannelState:
        """Return the channel of round (start + round) mod R of the file."""
        h = self._at(self._start + round % self._rounds)[:, :, :, None]
        gain = self._gain[(self._start + round % self._rounds) % self._rounds] * self.budget.gain
        return block_state(
            h, gain, self.settings.block_symbols, functools.partial(self._later, round)
        )

    def _later(self, round: int, blocks: int) -> Tensor:
        """Return [S, K, A, blocks, F], this round of the file and those after it."""
        first = self._start + round % self._rounds
        return torch.stack([self._at(first + block) for block in range(blocks)], 3)

    def _at(self, rounds: Tensor) -> Tensor:
        """Return [S, K, A, F] of the file's rounds [S], counted past its end."""
        place = rounds % self._rounds
        if self._delay is None:
            return self._response[place]
        real = self._response.real.dtype
        rotation = delay_rotations(self._delay[place], self._frequency[:, None], real)
        return frequency_response(self._response[place], rotation[:, :, None])

    def _take_out_gain(self) -> Tensor:
        """Return the mean power [1, K] of a device's responses, which they are divided by.

        Impulse responses have that of their paths: groups are as if spread over a wide band.
        """
        power = self._response.abs().double().square()
        gain = power.mean((0, 2, 3)) if self._delay is None else power.sum(3).mean((0, 2))
        root = gain.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        self._response = (self._response / root[:, None, None]).to(self._response.dtype)
        return gain[None]


def read(path: str) -> Responses:
    """Read a trace file. Raises UserError where there is none, or it is none."""
    import h5netcdf

    if not Path(path).is_file():
        raise UserError(
            f"channel.path: there is no file '{path}'; otafl.channels.trace.export writes one"
        )
    try:
        with h5netcdf.File(path, "r", phony_dims="sort") as file:
            arrays = {name: np.asarray(value) for name, value in file.variables.items()}
            attributes = dict(file.attrs)
    except OSError as error:
        raise UserError(f"channel.path: '{path}' is not a NetCDF-4 or HDF5 file") from error
    schema = attributes.get("schema")
    schema = schema.decode() if isinstance(schema, bytes) else schema
    if schema != SCHEMA:
        raise UserError(
            f"channel.path: '{path}' has the schema attribute {schema!r}; '{SCHEMA}' is understood"
        )
    kind = "a" if "a_real" in arrays else "h"
    needed = ("a_real", "a_imag", "tau_s") if kind == "a" else ("h_real", "h_imag")
    missing = [name for name in needed if name not in arrays]
    missing += [name for name in ("carrier_hz", "bandwidth_hz") if name not in attributes]
    if missing:
        raise UserError(f"channel.path: '{path}' lacks {', '.join(missing)}")
    response = arrays[needed[0]] + 1j * arrays[needed[1]]
    if response.ndim != 4:
        raise UserError(
            f"channel.path: {needed[0]} of '{path}' has {response.ndim} dimensions; (round, "
            f"device, antenna, {'path' if kind == 'a' else 'group'}) would do"
        )
    rounds, devices, _, paths = response.shape
    delay = arrays["tau_s"] if kind == "a" else None
    if delay is not None:
        delay = _fit(path, "tau_s", delay, (rounds, devices, paths))
    gain = arrays.get("gain")
    if gain is not None:
        gain = _fit(path, "gain", gain, (rounds, devices))
    return Responses(response, delay, gain, float(attributes["bandwidth_hz"]))


def export(
    channel: Channel,
    rounds: Sequence[int],
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    trial: int = 0,
) -> None:
    """Write the states of a channel as a trace: the first coherence block of each round, with the
    large-scale gains.

    Parameters
    ----------
    channel : made with all that it needs, as by `otafl.channels.build`.
    rounds : of the channel, in the order that the file is to have them.
    path : of the file, NetCDF-4.
    carrier_hz, bandwidth_hz : what the file says of the responses.
    trial : which of the channel's stack.
    """
    states = [channel.state(round) for round in rounds]
    h = torch.stack([state.h[trial, :, :, 0] for state in states]).cpu().numpy()
    gain = torch.stack([state.gain[trial] for state in states]).cpu().numpy()
    gains = {"gain": (("round", "device"), gain)}
    _write(path, carrier_hz, bandwidth_hz, h, "h", "group", gains)


def export_impulse_responses(
    a: Any,
    tau_s: Any,
    path: str | Path,
    *,
    carrier_hz: float,
    bandwidth_hz: float,
    direction: str = "uplink",
) -> None:
    """Write Sionna's impulse responses, of its channel models or its ray tracer, as a trace.

    Path loss in them becomes the gain. Rounds are the batch, and time within it. A device has one
    antenna.

    Parameters
    ----------
    a : [batch, num_rx, rx_ant, num_tx, tx_ant, paths, time] complex, the batch dimension optional.
    tau_s : [batch, num_rx, num_tx, paths], seconds; the batch dimension optional.
    path : of the file, NetCDF-4.
    carrier_hz, bandwidth_hz : what the file says of the responses.
    direction : "uplink" where the server is the one receiver and devices transmit; "downlink" for
        the reverse, whose responses are the same by reciprocity.

    Raises
    ------
    UserError : the shapes are others.
    """
    a, tau_s = np.asarray(a), np.asarray(tau_s)
    if a.ndim == 6:
        a, tau_s = a[None], tau_s[None]
    if direction == "downlink":
        a, tau_s = a.transpose(0, 3, 4, 1, 2, 5, 6), tau_s.swapaxes(1, 2)
    if a.ndim != 7 or tau_s.ndim != 4 or a.shape[1] != 1 or a.shape[4] != 1:
        raise UserError(
            f"impulse responses {a.shape} with delays {tau_s.shape}, {direction}: [batch, 1 "
            "server, antennas, devices, 1, paths, time] and [batch, 1, devices, paths] would do"
        )
    times = a.shape[6]
    response = a[:, 0, :, :, 0].transpose(0, 4, 2, 1, 3)  # batch, time, device, antenna, path
    response = response.reshape(-1, *response.shape[2:])
    delays = {"tau_s": (("round", "device", "path"), tau_s[:, 0].repeat(times, 0))}
    _write(path, carrier_hz, bandwidth_hz, response, "a", "path", delays)


def _write(
    path: str | Path,
    carrier_hz: float,
    bandwidth_hz: float,
    response: np.ndarray,
    name: str,
    last: str,
    others: dict[str, Any],
) -> None:
    import xarray as xr

    dims = ("round", "device", "antenna", last)
    variables = {f"{name}_real": (dims, response.real), f"{name}_imag": (dims, response.imag)}
    attributes = {"schema": SCHEMA, "carrier_hz": carrier_hz, "bandwidth_hz": bandwidth_hz}
    xr.Dataset(variables | others, attrs=attributes).to_netcdf(path, engine="h5netcdf")


def _fit(path: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values with a round dimension, of length 1 where they have none."""
    if values.shape == shape[1:]:
        values = values[None]
    if values.shape not in (shape, (1, *shape[1:])):
        raise UserError(
            f"channel.path: {name} of '{path}' has the shape {values.shape}; {shape} or "
            f"{shape[1:]} would do"
        )
    return values


def _frequencies(settings: Trace.Settings, file: Responses, budget: LinkBudget) -> Tensor:
    """Return [S, F]; for frequency responses they must be those of the file."""
    groups = settings.subcarrier_groups
    if file.delay_s is not None:
        return group_frequencies(budget.bandwidth_hz, groups or 1)
    known = file.response.shape[3]
    if groups not in (None, known):
        raise UserError(
            f"channel.subcarrier_groups: {groups}, but '{settings.path}' has frequency responses "
            f"of {known} groups; leave it out"
        )
    wanted = budget.bandwidth_hz.double()
    if known > 1 and bool(((wanted - file.bandwidth_hz).abs() > 1e-3 * file.bandwidth_hz).any()):
        raise UserError(
            f"channel.bandwidth_hz: '{settings.path}' has frequency responses over "
            f"{file.bandwidth_hz:g} Hz; that bandwidth would do"
        )
    return group_frequencies(wanted, known)
