"""Models encoded and sent by FedRLR, for the laws of `otafl.laws.linear_coding`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import Batch, Cohort, Context, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.models.mlp import Mlp
from otafl.models.softmax_regression import SoftmaxRegression

F64 = torch.float64


@dataclass(frozen=True)
class _NoLoss:
    """Local data without an effect: the sample weights are zero."""

    cohort: Cohort
    inputs: int
    steps: int

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        weight = self.cohort.weight.new_zeros(self.cohort.num_rows, 1)
        label = torch.zeros_like(self.cohort.device)[:, None]
        return Batch(weight.new_zeros(self.cohort.num_rows, 1, self.inputs), label, weight)


def make_cohort(weight: Tensor) -> Cohort:
    """Build a cohort of all devices, with weights [S, K]."""
    trials, devices = weight.shape
    row = torch.arange(trials * devices, device=weight.device)
    return Cohort.create(
        row // devices, row % devices, weight.flatten(), (devices,) * trials, devices
    )


def make_streams(bench: Bench, trials: int) -> Streams:
    """Return the random streams of trials."""
    return Streams([9] * trials, list(range(trials)), bench.torch_device, F64)


def draw_points(bench: Bench, s: Sequence[float], m: int, n: int, models: int) -> LowRank:
    """Draw models whose weight matrices [M, N] have the singular values s."""
    streams = make_streams(bench, models)
    u, v = (
        torch.linalg.qr(streams.draw_normal(CONFORMANCE / name, 0, (side, len(s))))[0]
        for name, side in (("left", m), ("right", n))
    )
    return LowRank(u, torch.tensor(s, dtype=F64, device=u.device).expand(models, -1), v)


@dataclass(frozen=True)
class Sent:
    """Factors [S, K, M or N, R] that devices transmit, and their combination at the server."""

    algorithm: FedRLR
    cohort: Cohort
    coded: Tensors

    def combine(self, streams: Streams, gain: dict[str, Tensor], noise: float = 0.0) -> Tensor:
        """Combine the received factors at the server.

        Parameters
        ----------
        streams : Streams
            Random streams of the noise.
        gain : dict of str to Tensor, [S, K]
            Gains of both factors, 0 for a silent device.
        noise : float
            Variance of each entry of a sum whose devices have the weights 1 / sqrt(K).

        Returns
        -------
        Tensor, [S, M, N]
            Recovered model Theta_0.
        """
        received: Tensors = {}
        for name, one in gain.items():
            value = torch.einsum("sk,skmr->smr", one, self.coded[name])
            z = streams.draw_normal(CONFORMANCE / name, 1, tuple(value.shape[1:]))
            received[name] = (value + z * math.sqrt(noise)).mT
        left = gain["u0"]
        bias = {"b0": left.new_zeros(len(left), received["v0"].shape[2])}
        weight = (self.cohort.weight.view_as(left) * (left != 0)).sum(1)
        message = Received((received, bias), (weight, weight), None, None)
        state = self.algorithm.update_server(bias, message, Context(self.cohort, {}, streams, 0))
        return to_dense(LowRank(state["u0"], state["s0"], state["v0"]))


def send_models(
    streams: Streams, point: LowRank, devices: int, weight: Tensor | None = None
) -> Sent:
    """Encode the models of K devices in each of S trials.

    Parameters
    ----------
    streams : Streams
        Random streams of the trials.
    point : LowRank
        One model for all devices, or K models.
    devices : int
        Number of devices K.
    weight : Tensor, [K], optional
        Weights of the devices; equal if not given.

    Returns
    -------
    Sent
        Factors that the devices transmit.
    """
    trials, rank = streams.num_trials, point.s.shape[1]
    m, n = point.u.shape[1], point.v.shape[1]
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (m,), n)
    algorithm = FedRLR(FedRLR.Settings(rank=rank), model, devices)
    if weight is None:
        weight = torch.full((devices,), 1.0 / devices, dtype=F64, device=point.s.device)
    own = {
        f"{name}0": block.expand(devices, *block.shape[1:])
        for name, block in zip("usv", point, strict=True)
    }
    own["b0"] = weight.new_zeros(devices, n)
    first = Streams([9], [0], streams.device, F64)
    _, (state, _, _) = _run_local_update(algorithm, first, own, weight, 1)
    same = {
        name: state[name].repeat(trials, *[1] * (block.dim() - 1)) for name, block in own.items()
    }
    cohort, (_, payload, _) = _run_local_update(algorithm, streams, same, weight, 0)
    coded = {name: b.mT.unflatten(0, (trials, devices)) for name, b in payload[0].tensors.items()}
    return Sent(algorithm, cohort, coded)


def draw_coders(streams: Streams, rank: int, round: int) -> list[Tensor]:
    """Draw the coders F [S, R, R] of two layers of a device, from U F at U = V = Sigma = 1.

    Parameters
    ----------
    streams : Streams
        Random streams of the trials.
    rank : int
        Rank R of both layers.
    round : int
        Number of the round.

    Returns
    -------
    list of Tensor, [S, R, R]
        The coders.
    """
    model = Mlp(Mlp.Settings(hidden=(rank,)), (rank,), rank)
    algorithm = FedRLR(FedRLR.Settings(rank=rank), model, 1)
    eye = torch.eye(rank, dtype=F64, device=streams.device).repeat(streams.num_trials, 1, 1)
    layer = {"u": eye, "s": torch.ones_like(eye[:, 0]), "v": eye, "b": torch.zeros_like(eye[:, 0])}
    own = {f"{name}{i}": block for i in range(2) for name, block in layer.items()}
    _, (_, payload, _) = _run_local_update(algorithm, streams, own, layer["s"][0, :1], 0, round)
    return [payload[0].tensors[f"u{i}"].mT for i in range(2)]


def _run_local_update(
    algorithm: FedRLR, streams: Streams, own: Tensors, weight: Tensor, steps: int, round: int = 0
) -> tuple[Cohort, Any]:
    """Run the local update of all devices, whose steps have no gradient and differ in no trial."""
    cohort = make_cohort(weight.expand(streams.num_trials, -1))
    server = {name: block[:: len(weight)] for name, block in own.items()}
    zero = weight.new_zeros(streams.num_trials)
    hyper = {"q": zero + 1.0, "nu": zero + 1.0, "c1": zero, "mu": zero}
    rows = algorithm.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
    work: Any = _NoLoss(cohort, own["u0"].shape[1], steps)
    context = LocalContext(cohort, hyper, streams, round, work)
    return cohort, algorithm.run_local_update(rows, own, context)


def draw_gains(streams: Streams, devices: int, faded: bool, name: str = "gain") -> Tensor:
    """Draw |h| [S, K] of Rayleigh fading, or ones."""
    if not faded:
        return torch.ones(streams.num_trials, devices, dtype=F64, device=streams.device)
    draw = streams.draw_normal(CONFORMANCE / name, 0, (devices, 2))
    return draw.square().sum(-1).div(2.0).sqrt()
