"""The uplink alone, for people with a training loop of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from otafl.assembly import build_link
from otafl.contracts import Blocks, Cohort, Group
from otafl.errors import UserError
from otafl.link_contracts import Link
from otafl.power.config import CustomPowerConfig
from otafl.power.custom import CustomPolicy
from otafl.rng import Streams
from otafl.scenario import load_scenario

Array = TypeVar("Array", np.ndarray, Tensor)
PolicyFunction = Callable[[Link], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class UplinkReport:
    """What an aggregation cost and how far it was off. nmse: squared error over the squared exact
    mean. symbols: channel uses. airtime_s, energy_j [K], tx_power_w [K] (mean over the payload).
    active: [K] bool, who was on air. h, p: [K] complex, the scalar channel after the receiver's
    combining, and the transmit scalar; c: [K] effective gains Re(h p) / sqrt(eta); eta: receive
    scaling. Where the payload was sent in several segments (a channel that changes within it), all
    five have a leading [Q]. h, p, c and eta are absent (None) on transports that do not
    superpose."""

    nmse: float
    symbols: float
    bits: float
    side_symbols: float
    airtime_s: float
    energy_j: np.ndarray
    tx_power_w: np.ndarray
    active: np.ndarray
    h: np.ndarray | None = None
    p: np.ndarray | None = None
    c: np.ndarray | None = None
    eta: float | np.ndarray | None = None


def over_the_air(
    updates: Array | Mapping[str, Array],
    *,
    channel: str | Mapping[str, Any] = "rayleigh",
    power: str | Mapping[str, Any] | PolicyFunction = "gbma",
    snr_db: float | None = None,
    csi: str | Mapping[str, Any] = "perfect",
    receiver: str | Mapping[str, Any] = "auto",
    impairments: Mapping[str, Any] | None = None,
    transport: str | Mapping[str, Any] = "over_the_air",
    weights: Array | None = None,
    seed: int = 0,
    round: int = 0,
) -> tuple[Any, UplinkReport]:
    """Aggregates the updates of K devices over a simulated uplink.

    updates: [K, *shape] floating-point NumPy array or torch tensor, or a dict of them, which is
    one payload. channel, power, csi, receiver, transport: a name, or a mapping with its settings,
    as in a scenario, whose section `impairments` is a mapping; power may also be a function or
    module of yours, policy(link) -> (p, eta), as in `otafl.power.custom`. snr_db: budget on the
    mean symbol power over the receiver's noise variance. weights: [K], of the mean (equal, if not
    given). seed and round choose the draws: round t of a loop should say round=t.

    Returns the estimate of the weighted mean, [*shape] of the kind, dtype and device that came in
    (or a dict), and an `UplinkReport`. The estimate passes gradients to updates that are tensors
    and to the parameters of a policy of yours; the report's numbers are plain. Raises UserError for
    settings or shapes that cannot be.
    """
    if isinstance(round, bool) or not isinstance(round, int | np.integer) or round < 0:
        raise UserError(f"over_the_air: round must be a whole number from 0 on; got {round!r}")
    named = updates if isinstance(updates, Mapping) else {"updates": updates}
    blocks, like = _blocks(named)
    first = next(iter(blocks.values()))
    devices = first.shape[0]
    policy = None
    if callable(power):
        called = getattr(power, "__name__", type(power).__name__)
        policy = CustomPolicy(CustomPowerConfig.model_construct(name=called), power)
    scenario = load_scenario(
        {
            "name": "over_the_air",
            "channel": _with_snr(channel, snr_db),
            "power": power if policy is None else "full",
            "csi": csi,
            "receiver": receiver,
            "impairments": impairments or {},
            "transport": transport,
            "devices": {"count": devices},
            "seed": seed,
            "output": {"save_link": True},
        }
    )
    streams = Streams([seed], [0], first.device, first.dtype)
    link = build_link([scenario], devices, streams, save_gram=False, policy=policy)
    payload = (Group(blocks),)
    received, report = link.transport.deliver(
        payload, _cohort(weights, devices, first), link.channel.state(round), round
    )
    mean = {name: _back(block, like[name]) for name, block in received.mean[0].items()}
    saved = {name: _plain(value) for name, value in report.saved.items()}
    watts = float(link.budget.unit_power_w[0])
    scalars: dict[str, Any] = {"active": _plain(report.power[0]) > 0}
    if saved:
        scalars = {name: saved[f"{name}/0"][0] for name in ("active", "h", "p", "c", "eta")}
        if len(scalars["eta"]) == 1:
            scalars = {name: value[0] for name, value in scalars.items()}
            scalars["eta"] = float(scalars["eta"])
    out = UplinkReport(
        nmse=float(_plain(report.nmse[0])),
        symbols=float(report.symbols[0]),
        bits=float(report.bits[0]),
        side_symbols=float(report.side_symbols[0]),
        airtime_s=float(report.airtime_s[0]),
        energy_j=_plain(report.energy_j[0]),
        tx_power_w=_plain(report.power[0]) * watts,
        **scalars,
    )
    return (mean if isinstance(updates, Mapping) else mean["updates"]), out


def _blocks(named: Mapping[str, Any]) -> tuple[Blocks, Mapping[str, Any]]:
    """Tensors [K, *shape] of one dtype and device, without a copy where none is needed."""
    blocks: Blocks = {}
    for name, value in named.items():
        if not isinstance(value, np.ndarray | Tensor):
            raise UserError(
                f"over_the_air: '{name}' is a {type(value).__name__}; a NumPy array or a torch "
                "tensor [K, ...], a row a device, would do"
            )
        tensor = (
            value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value, order="C"))
        )
        if not tensor.is_floating_point() or tensor.dim() < 1 or 0 in tensor.shape[1:]:
            raise UserError(
                f"over_the_air: '{name}' has dtype {tensor.dtype} and shape {list(tensor.shape)}; "
                "a floating-point array [K, ...], a row a device, would do"
            )
        blocks[name] = tensor.reshape(len(tensor), 1) if tensor.dim() == 1 else tensor
    counts = {name: tensor.shape[0] for name, tensor in blocks.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise UserError(
            f"over_the_air: every array needs the same number of rows, one a device; got {counts}"
        )
    wide = any(tensor.dtype == torch.float64 for tensor in blocks.values())
    dtype = torch.float64 if wide else torch.float32
    return {name: tensor.to(dtype) for name, tensor in blocks.items()}, named


def _with_snr(channel: str | Mapping[str, Any], snr_db: float | None) -> dict[str, Any]:
    section = {"name": channel} if isinstance(channel, str) else dict(channel)
    return section if snr_db is None else {**section, "snr_db": snr_db}


def _cohort(weights: Any, devices: int, like: Tensor) -> Cohort:
    weight = like.new_ones(devices)
    if weights is not None:
        try:
            weight = torch.as_tensor(weights).to(like)
        except (TypeError, ValueError, RuntimeError):
            weight = like.new_empty(0)
        good = weight.shape == (devices,) and bool(weight.isfinite().all() and (weight >= 0).all())
        if not good or not weight.sum() > 0:
            raise UserError(
                f"over_the_air: weights must be {devices} finite non-negative numbers, not all "
                f"zero; got {weights!r}"
            )
    device = torch.arange(devices, device=like.device)
    weight = weight / weight.sum()
    return Cohort.fresh(torch.zeros_like(device), device, weight, (devices,), devices)


def _plain(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy()


def _back(block: Tensor, like: Any) -> Any:
    """The estimate [1, ...] as the shape, kind and dtype that came in."""
    row = block[0].view(tuple(like.shape[1:]))
    if isinstance(like, Tensor):
        return row.to(like.dtype)
    return row.detach().numpy().astype(like.dtype, copy=False)
