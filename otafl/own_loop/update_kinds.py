"""What a loop gives an uplink and gets: updates in their kind, and reports on error and cost.

Updates are an array, a mapping of arrays, or state_dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError


@dataclass(frozen=True)
class UplinkReport:
    """Cost and error of one aggregation.

    If a payload is sent in Q segments (a channel that changes within it), active, h, p, c and eta
    have a leading dimension [Q].

    Parameters
    ----------
    nmse : float
        Squared error over the squared exact mean, relative to the codec's output.
    symbols : float
        Channel uses of the payload.
    bits : float
        Bits of the payload on a digital uplink.
    side_symbols : float
        Channel uses of side information.
    participants : int
        Number of devices whose update was delivered.
    airtime_s : float
        Duration of the slot in seconds.
    energy_j : ndarray
        [K] radiated energy in joules.
    tx_power_w : ndarray
        [K] radiated power in watts, averaged over the payload.
    active : ndarray
        [K] bool, true for devices that transmitted.
    h : ndarray, optional
        [K] complex, scalar channels after receive combining, with large-scale gain. None, as are p,
        c and eta, for transports without superposition.
    p : ndarray, optional
        [K] complex, transmit scalars.
    c : ndarray, optional
        [K] effective gains Re(h p) / sqrt(eta).
    eta : float or ndarray, optional
        Receive scaling.
    """

    nmse: float
    symbols: float
    bits: float
    side_symbols: float
    participants: int
    airtime_s: float
    energy_j: np.ndarray
    tx_power_w: np.ndarray
    active: np.ndarray
    h: np.ndarray | None = None
    p: np.ndarray | None = None
    c: np.ndarray | None = None
    eta: float | np.ndarray | None = None


@dataclass(frozen=True)
class UplinkTotals:
    """Total cost of all calls of an uplink.

    Parameters
    ----------
    rounds : int
        Number of calls.
    symbols, bits, side_symbols : float
        Channel uses and bits, as in `UplinkReport`.
    airtime_s : float
        Duration of all slots in seconds.
    energy_j : ndarray
        [K] radiated energy in joules.
    """

    rounds: int
    symbols: float
    bits: float
    side_symbols: float
    airtime_s: float
    energy_j: np.ndarray


@dataclass(frozen=True)
class OwnDelivery:
    """Updates that the server received in a round.

    Parameters
    ----------
    mean : array, tensor or mapping
        Estimate of the weighted mean, as returned by `WirelessUplink`.
    report : UplinkReport
        Cost and error of the aggregation.
    per_device : list, optional
        Received update of each transmitter, in the given order, with None for a lost update. None
        if the transport does not separate the devices.
    """

    mean: Any
    report: UplinkReport
    per_device: list[Any] | None


@dataclass(frozen=True)
class Updates:
    """Updates of n devices.

    Parameters
    ----------
    kind : {"array", "mapping", "state_dicts"}
        Kind of the updates.
    arrays : dict of array or tensor [n, *shape]
        Entries as given.
    tensors : dict of tensor [n, *shape]
        Real entries that pass the uplink, of one dtype and device.
    count : int
        Number of devices, n.
    """

    kind: Literal["array", "mapping", "state_dicts"]
    arrays: dict[str, Any]
    tensors: Tensors
    count: int

    @staticmethod
    def read(updates: Any, caller: str) -> Updates:
        """Read updates.

        Raises UserError, which begins with the caller's name, for any other kind.
        """
        kind: Literal["array", "mapping", "state_dicts"] = "array"
        named: Mapping[str, Any] = {"updates": updates}
        if isinstance(updates, Mapping):
            kind, named = "mapping", updates
        elif isinstance(updates, Sequence) and updates and _are_all_mappings(updates):
            kind, named = "state_dicts", _stack_state_dicts(updates, caller)
        tensors = {name: _to_tensor(name, value, caller) for name, value in named.items()}
        real = {name: t for name, t in tensors.items() if t.is_floating_point()}
        for name, tensor in tensors.items():
            whole = kind != "array" and not tensor.is_complex()
            if tensor.dim() < 1 or 0 in tensor.shape[1:] or not (whole or name in real):
                raise UserError(
                    f"{caller}: '{name}' has dtype {tensor.dtype} and shape {list(tensor.shape)}; "
                    "expected a floating-point array [K, ...], one row per device"
                )
        if kind == "array" and tensors["updates"].dim() == 1:
            raise UserError(
                f"{caller}: updates have shape {list(tensors['updates'].shape)}; expected "
                "[K, ...], one row per device: use updates[None] for one device, updates[:, None] "
                "for one number per device"
            )
        counts = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(counts.values())) != 1 or 0 in counts.values():
            raise UserError(
                f"{caller}: every array needs the same number of rows, one per device; got {counts}"
            )
        if not real:
            raise UserError(
                f"{caller}: none of {', '.join(map(repr, tensors))} has real numbers; there is "
                "nothing to send"
            )
        places = {str(tensor.device) for tensor in real.values()}
        if len(places) > 1:
            raise UserError(
                f"{caller}: updates lie on {' and '.join(sorted(places))}; expected one device"
            )
        wide = any(tensor.dtype == torch.float64 for tensor in real.values())
        dtype = torch.float64 if wide else torch.float32
        blocks = {
            name: (t.reshape(len(t), 1) if t.dim() == 1 else t).to(dtype)
            for name, t in real.items()
        }
        return Updates(kind, dict(named), blocks, next(iter(counts.values())))

    def find_not_finite(self) -> Iterator[tuple[str, int]]:
        """Yield the entries that hold NaN or infinity, each with its first such row."""
        for name, block in self.tensors.items():
            plain = block.detach()
            # without a copy of the block; finite numbers may still have an infinite sum
            if not bool(plain.sum().isfinite()):
                rows = (~plain.isfinite()).flatten(1).any(1)
                if bool(rows.any()):
                    yield name, int(rows.int().argmax())

    def take(self, rows: np.ndarray) -> Updates:
        """Return only the rows [m] int64, in their order."""
        place = torch.from_numpy(rows).to(next(iter(self.tensors.values())).device)
        named = {
            name: value[place.to(value.device)] if isinstance(value, Tensor) else value[rows]
            for name, value in self.arrays.items()
        }
        blocks = {name: block[place] for name, block in self.tensors.items()}
        return replace(self, arrays=named, tensors=blocks, count=len(rows))

    def to_input_kind(self, real: Tensors, share: np.ndarray) -> Any:
        """Return tensors [*shape] of one row, in the form of the updates.

        They have their kind, dtypes and devices. Entries that did not pass the uplink are the mean
        under the shares [n], rounded.
        """
        out = {
            name: _convert_like(real[name], value) if name in real else _round_mean(value, share)
            for name, value in self.arrays.items()
        }
        return out["updates"] if self.kind == "array" else out


def _are_all_mappings(updates: Sequence[Any]) -> bool:
    return all(isinstance(one, Mapping) for one in updates)


def _stack_state_dicts(states: Sequence[Mapping[str, Any]], caller: str) -> dict[str, Any]:
    """Stack the entries of state_dicts, name -> [n, *shape]."""
    first = states[0]
    for index, state in enumerate(states):
        other = set(state) ^ set(first)
        if other:
            raise UserError(
                f"{caller}: update {index} and update 0 do not both have "
                f"{', '.join(map(repr, sorted(other)))}; expected state_dicts of one model"
            )
    out: dict[str, Any] = {}
    for name in first:
        values = [state[name] for state in states]
        shapes = [tuple(np.shape(value)) for value in values]
        if len(set(shapes)) > 1:
            index = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
            raise UserError(
                f"{caller}: '{name}' has shape {list(shapes[index])} in update {index} and "
                f"{list(shapes[0])} in update 0; expected state_dicts of one model"
            )
        tensors = all(isinstance(value, Tensor) for value in values)
        out[name] = torch.stack(values) if tensors else np.stack([np.asarray(v) for v in values])
    return out


def _to_tensor(name: str, value: Any, caller: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise UserError(
            f"{caller}: '{name}' is a {type(value).__name__}; expected a NumPy array or a torch "
            "tensor [K, ...], one row per device (torch.stack makes one of a list of tensors)"
        )
    return torch.as_tensor(np.asarray(value, order="C"))


def _convert_like(row: Tensor, like: Any) -> Any:
    """Convert a row to the shape, kind and dtype of a given entry [n, *shape]."""
    row = row.view(tuple(like.shape[1:]))
    if isinstance(like, Tensor):
        return row.to(like.dtype)
    return row.detach().cpu().numpy().astype(like.dtype, copy=False)


def _round_mean(values: Any, share: np.ndarray) -> Any:
    """Return the mean of whole numbers or truth values [n, *shape], rounded to their dtype."""
    plain = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    mean = np.rint(np.tensordot(share, plain.astype(np.float64), 1)).astype(plain.dtype)
    if isinstance(values, Tensor):
        return torch.as_tensor(mean, device=values.device, dtype=values.dtype)
    return mean
