"""Other devices' models, mixed by each device by their gain on validation samples (FedFomo).

Personalised federated learning with first-order model optimisation. The server forwards M models to
each device. The device compares them with a baseline on its own validation samples, moves to a
mixture of the better ones, trains it and sends it. The baseline is the device's model before its
last local training. The trained model is one of the candidates, so that training is kept as far as
it helped. If no model is better, the baseline stays.

The server forwards the models of the largest affinity, which the devices report in their payload.
Each of the M is replaced by a random one with a probability that decreases over the rounds. A
device is forwarded models of the same M devices until its report is delivered.

Validation samples are evenly spaced over a device's samples, floor(share n_i) of them, and are in
no training minibatch. A device with too few samples has no validation samples and trains alone.

References
----------
Zhang, Sapra, Fidler, Yeung, Alvarez 2021, "Personalized Federated Learning with First Order Model
    Optimization".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind
from otafl.algorithms.deliveries import get_delivered, update_table
from otafl.algorithms.local_samples import add_, get_sample_mask, split_into_pieces
from otafl.algorithms.parameters import add_prefix, build_model_payload, select_prefix
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams, declare_purpose, make_step_key
from otafl.core.settings import declare_stackable
from otafl.data.training_data import choose
from otafl.models.base import Model, copy_params, flatten, unflatten

MINIBATCH = declare_purpose("fedfomo/minibatch", __name__)
EXPLORE = declare_purpose("fedfomo/explore", __name__)

GAIN = "gain"

EXPLORE_FIRST, EXPLORE_DECAY = 0.3, 0.05
"""Probability in the first round that a random model is forwarded instead of one with a large
affinity, and its decrease in each round, down to 0."""


class FedFomo(Algorithm):
    r"""First-order model optimisation of personal models.

    The server's tensors are "models" [S, K, P], the last delivered model of each device or its
    start; "affinity" [S, K, K]; and "offer" [S, K, M] int64, the devices whose models each device
    is forwarded next. The device's tensors are "personal.NAME", the trained model, and "base.NAME",
    the model before training.

    Whatever the uplink does, devices keep the trained model and the baseline: the device
    compares models on its own samples.

    Notes
    -----
    With the baseline theta_i, the validation loss L_i and the forwarded models theta_n:

    .. math::

        g_n = \frac{L_i(\theta_i) - L_i(\theta_n)}{\|\theta_n - \theta_i\|}, \quad w_n =
        \frac{\max(g_n, 0)}{\sum_m \max(g_m, 0)}

    .. math::

        \theta_i \leftarrow \theta_i + \sum_n w_n (\theta_n - \theta_i)

    The affinity moves by the reported gains, p_i <- p_i + g.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    payload: ClassVar = PayloadKind("each", is_increment=False)

    device_models = ("personal", "base")

    is_per_device = True

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "keeps a row for each device at the server",
        "epochs": "trains on a part of a device's samples",
    }

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {
            "transport.name": "digital",
            "data.validation": 0.1,
        }

        name: Literal["fedfomo"] = "fedfomo"
        learning_rate: float = declare_stackable(0.01, gt=0)
        """step size of SGD on a device's model"""
        models: int = Field(5, ge=0)
        """M, number of models forwarded to each device; all others if there are fewer"""
        validation: float = Field(0.2, gt=0, lt=1)
        """share of a device's samples for validation"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.num_offers = min(settings.models, devices - 1)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, state = super().init(streams, hyper)
        flat = server[c.MODEL]
        affinity = flat.new_zeros(len(flat), self.num_devices, self.num_devices)
        server = {
            "models": flat[:, None].repeat(1, self.num_devices, 1),
            "affinity": affinity,
            "offer": self.offer(affinity, 0, streams),
        }
        return server, state

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        owners = server["offer"].flatten(0, 1)[cohort.flat_index]
        rows = cohort.trial[:, None] * self.num_devices + owners
        return c.Broadcast({"models": server["models"].flatten(0, 1)[rows]}, per_device=True)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        work, cohort = context.local_data, context.cohort
        data = HeldOutData(
            work.load_full_batch(), self.settings.validation, work.draw_batch(0).y.shape[1]
        )
        trained = select_prefix(devices, "personal")
        params, gain = self.mix(broadcast.tensors["models"], trained, devices, data.validation)
        base = add_prefix("base", copy_params(params))
        rate, size = context.gather_hyper("learning_rate"), (data.batch_size,)
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            uniform = context.streams.draw_device_uniform(
                MINIBATCH, make_step_key(context.round, step), cohort.trial, cohort.device, size
            )
            batch = replace(data.draw_minibatch(uniform), keys=work.draw_keys(step))
            loss += self.model.take_sgd_step_(params, batch, rate)
        report = (c.Group({GAIN: gain}),) if self.num_offers else ()
        payload = (*build_model_payload(params), *report)
        return base | add_prefix("personal", params), payload, loss / work.steps

    def mix(
        self, offered: Tensor, trained: c.Tensors, devices: c.Tensors, validation: c.Batch
    ) -> tuple[c.Tensors, Tensor]:
        """Mix the baseline with the better models.

        Parameters
        ----------
        offered : Tensor [n, M, P]
            Forwarded models.
        trained : dict of str to Tensor [n, *shape]
            Model after the last local training.
        devices : dict of str to Tensor [n, *shape]
            State of the devices, with the baseline.
        validation : Batch
            Validation samples.

        Returns
        -------
        dict of str to Tensor [n, *shape]
            theta_i after the exchange, in memory of its own.
        Tensor [n, M]
            Gains g of the forwarded models.
        """
        flat, own_flat = flatten(select_prefix(devices, "base")), flatten(trained)
        base_loss = self._compute_losses(flat[:, None], validation)
        gain = flat.new_zeros(len(flat), 0)
        if self.num_offers:
            gain = self._compute_gain(offered, flat, base_loss, validation)
        own_gain = self._compute_gain(own_flat[:, None], flat, base_loss, validation)[:, 0]
        positive, own_positive = gain.clamp_min(0.0), own_gain.clamp_min(0.0)
        total = positive.sum(1) + own_positive
        scale = torch.where(total > 0, 1.0 / total, 0.0)[:, None]
        weights, own_weight = positive * scale, own_positive[:, None] * scale
        assert validation.weight is not None
        has_validation = validation.weight.sum(1, keepdim=True) > 0
        rest = (total == 0).to(flat.dtype)[:, None]  # the baseline or the trained model stays
        mixed = torch.addcmul(
            rest * torch.where(has_validation, flat, own_flat), own_weight, own_flat
        )
        if self.num_offers:
            mixed += torch.bmm(weights[:, None], offered).squeeze(1)
        return copy_params(unflatten(mixed, self.model.shapes)), gain

    def _compute_gain(
        self, models: Tensor, base: Tensor, base_loss: Tensor, validation: c.Batch
    ) -> Tensor:
        """Compute the gains g [n, M] of models [n, M, P] over the baseline [n, P] with loss [n, 1].

        The gain of the baseline itself is 0.
        """
        lower = base_loss - self._compute_losses(models, validation)
        apart = torch.linalg.vector_norm(models - base[:, None], dim=2)
        return torch.where(apart > 0, lower / apart, 0.0)

    def _compute_losses(self, models: Tensor, validation: c.Batch) -> Tensor:
        """Compute the losses [n, M] of models [n, M, P]."""
        count = models.shape[1]
        out = torch.zeros_like(models[:, :, 0])
        for rows, piece in split_into_pieces(validation):
            params = unflatten(
                (models if rows is None else models[rows]).flatten(0, 1), self.model.shapes
            )
            x, y = (part.repeat_interleave(count, 0) for part in (piece.x, piece.y))
            assert piece.weight is not None
            own = c.Batch(x, y, piece.weight.repeat_interleave(count, 0))
            loss = self.model.loss.compute_mean(self.model.score_batch(params, own), own)
            add_(out, rows, loss.unflatten(0, (-1, count)))
        return out

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort = context.cohort
        each, delivered_mask = get_delivered(received, 0)
        new = dict(server) | {
            "models": update_table(server["models"], each[c.MODEL], delivered_mask, cohort)
        }
        if not self.num_offers:
            return new
        each, delivered_mask = get_delivered(received, 1)
        cell = cohort.flat_index
        owners = server["offer"].flatten(0, 1)[cell]
        known = server["affinity"].flatten(0, 1)[cell]
        p = known.scatter_add(1, owners, each[GAIN])  # p_i <- p_i + g
        new["affinity"] = update_table(server["affinity"], p, delivered_mask, cohort)
        offer = self.offer(new["affinity"], int(context.round) + 1, context.streams)
        new["offer"] = update_table(
            server["offer"], offer.flatten(0, 1)[cell], delivered_mask, cohort
        )
        return new

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of training and of the exchange.

        Training leaves out the validation samples. The exchange has their forward passes through
        the baseline and every compared model, the distances of the models, and the mixture.
        """
        held = count_held_out(workload.num_samples, self.settings.validation)
        compared = self.num_offers + 1
        exchange = (1 + compared) * self.model.count_forward_flops(held)
        exchange += (3.0 * compared + 2.0 * (1 + compared)) * self.model.num_params
        rest = replace(workload, num_samples=workload.num_samples - held)
        return exchange + self.count_step_flops(rest, per_param_round=0.0)

    def offer(self, affinity: Tensor, round: int, streams: Streams) -> Tensor:
        """Choose the devices whose models each device is forwarded in a round.

        Parameters
        ----------
        affinity : Tensor [S, K, K]
            Affinity of the devices. Ties are broken at random.
        round : int
            Index of the round.
        streams : Streams
            Source of random numbers.

        Returns
        -------
        Tensor, int64 [S, K, M]
            Different devices, never the device itself.
        """
        devices, wanted = self.num_devices, self.num_offers
        if not wanted:
            return torch.zeros_like(affinity[:, :, :0], dtype=torch.int64)
        draw = streams.draw_uniform(EXPLORE, round, (devices, devices + wanted))
        chance, explored = draw.split([devices, wanted], 2)
        liked = (explored >= EXPLORE_FIRST - EXPLORE_DECAY * round).sum(2, keepdim=True)
        itself = torch.eye(devices, dtype=torch.bool, device=affinity.device)
        shuffled = chance.argsort(2)
        preference = affinity.masked_fill(itself, -torch.inf).gather(2, shuffled)
        order = preference.argsort(dim=2, descending=True, stable=True)
        rank = torch.empty_like(order)
        rank.scatter_(
            2, shuffled.gather(2, order), torch.arange(devices, device=rank.device).expand_as(rank)
        )
        score = torch.where(rank < liked, 1.0 + chance, chance).masked_fill(itself, -1.0)
        return score.topk(wanted, 2).indices


def count_held_out(samples: np.ndarray, share: float) -> np.ndarray:
    """Count the validation samples among the samples."""
    return np.floor(samples * share)


class HeldOutData:
    """Split of the devices' samples into training and validation samples.

    A minibatch is a uniform draw without replacement of `batch_size` training samples. A device
    with fewer gets all of them, padded with weight 0.

    Parameters
    ----------
    full : Batch [n, n_max]
        All samples, padded.
    share : float
        Share of validation samples.
    batch_size : int
        Samples of a minibatch.

    Attributes
    ----------
    validation : Batch
        Validation samples. Their weights have sum one, or zero for a device without any.
    """

    def __init__(self, full: c.Batch, share: float, batch_size: int) -> None:
        self.batch_size = batch_size
        longest, place = full.y.shape[1], full.y.device
        ends = count_held_out(np.arange(longest + 1), share)
        out = np.diff(ends) > 0  # spread evenly over any order of the samples
        self._training = torch.from_numpy(np.flatnonzero(~out)).to(place)
        validation = torch.from_numpy(np.flatnonzero(out)).to(place)
        some = get_sample_mask(full)
        kept = some[:, validation]
        self.validation = c.Batch(
            full.x[:, validation],
            full.y[:, validation],
            kept / kept.sum(1, keepdim=True).clamp_min(1.0),
        )
        self._full = full
        self._count = some[:, self._training].sum(1).long()

    def draw_minibatch(self, uniform: Tensor) -> c.Batch:
        """Draw a minibatch from numbers [n, B] that are uniform in (0, 1)."""
        size, count = self.batch_size, self._count[:, None]
        in_turn = torch.arange(size, device=count.device)
        pick = torch.where(
            count < size,
            torch.where(in_turn < count, in_turn, 0),
            choose(uniform, self._count.clamp_min(size)),
        )
        at = self._training[pick]
        row = torch.arange(len(at), device=at.device)[:, None]
        several = count.clamp(max=size)
        weight = (in_turn < several).to(self._full.x.dtype) / several
        return c.Batch(self._full.x[row, at], self._full.y[row, at], weight)
