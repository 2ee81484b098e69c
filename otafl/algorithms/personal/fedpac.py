"""Features aligned to class centroids, and a mixture of last layers for each device (FedPAC).

Personalised federated learning with feature alignment and classifier collaboration. The extractor
f, all layers except the last, is shared. Device i has its own last layer (head) phi_i. In a round
it

1. computes statistics of its features with the received f and phi_i;
2. trains the head by SGD with f fixed, then f with the head fixed, under a penalty that pulls
features to the global centroid of their class, for classes with a centroid;
3. sends the increment of f, the head, the statistics, its own centroids (class means of the new
features) and its number of samples in each class.

The server averages f, averages the centroids of each class by samples, and mixes the heads of the
devices with a delivered update. A device without a delivered update receives its last mixed head,
initially the start.

The personal model is (f, phi_i) after local training. Heads differ, so the broadcast of extractor
and head is separate for each device. `learning_rate` is that of the extractor.

References
----------
Xu, Tong, Huang 2023, "Personalized Federated Learning with Feature Alignment and Classifier
    Collaboration".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, PersonalSettings, Views
from otafl.algorithms.deliveries import (
    find_delivered,
    get_delivered,
    scatter_to_table,
    update_table,
)
from otafl.algorithms.local_samples import add_, get_sample_mask, select_rows, split_into_pieces
from otafl.algorithms.parameters import (
    add_prefix,
    apply_mean_increment,
    build_increment,
    make_device_view,
)
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, copy_params, descend_, differentiate, flatten, unflatten
from otafl.models.layered import LayeredModel

HEAD_SHARE = 5
"""Steps on the extractor for each step on the last layer, of which there is at least one; in the
paper one epoch, then five."""


RIDGE = 1e-13
"""Term that keeps the scaled matrix of a quadratic program positive definite."""


class FedPAC(Algorithm):
    r"""Feature alignment and classifier collaboration.

    The server's tensors are "model" [S, P'], the extractor; "head" [S, K, Q], the next head of each
    device; "centroid" [S, C, d]; and "known" [S, C], 1 for classes with a centroid. The device's
    tensors are "personal.NAME".

    Whatever the uplink does, devices keep the model as trained: the device has it until the
    server sends another.

    Notes
    -----
    With p_i(c) the share of class c at device i, the statistics are

    .. math::

        h_i[c] = p_i(c) \, \mathrm{mean}_c f(x), \quad V_i = \frac{1}{n_i} \left( \mathrm{mean}
        \|f(x)\|^2 - \sum_c \|h_i[c]\|^2 \right).

    The loss of the extractor, with the global centroid c_y of class y, is the mean of

    .. math::

        l(x, y) + \frac{\lambda}{d} \|f(x) - c_y\|^2.

    The server mixes heads by weights on the simplex that balance variance and bias:

    .. math::

        \phi_i \leftarrow \sum_j a_{ij} \phi_j, \quad a_i = \mathrm{argmin} \sum_j a_{ij}^2 V_j +
        \sum_c \left\| \sum_j a_{ij} (h_i[c] - h_j[c]) \right\|^2

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_dnn.yaml` compares it with other personalised methods.
    """

    payload: ClassVar = PayloadKind("each", is_increment=False)
    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    excludes: ClassVar[Mapping[str, str]] = {
        "values": "aligns features to the centroid of each class",
        "merging": "keeps a row for each device at the server",
    }

    class Settings(PersonalSettings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedpac"] = "fedpac"
        penalty: float = declare_stackable(1.0, ge=0)
        """lambda, weight of the mean square of f(x) - c_y in the extractor's loss"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        if not isinstance(model, LayeredModel) or len(model.layers) < 2:
            raise UserError(
                "algorithm.name: 'fedpac' needs a model with layers before the last one, whose "
                "outputs are the features; use mlp with hidden layers or cnn"
            )
        if model.uses_dropout:
            raise UserError(
                f"model.dropout: got {model.dropout:g}, but 'fedpac' aligns features of training "
                "with those of tests, so it trains without dropout; use dropout: 0"
            )
        last = model.layers[-1]
        self.last, self.width, self.classes = last, last.inputs, last.outputs
        self.head = LayeredModel((last,))
        self.head.loss = model.loss
        self.body_shapes = {n: s for n, s in model.shapes.items() if n not in self.head.shapes}
        self.sent_shapes = self.body_shapes

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        params = unflatten(server[c.MODEL], self.model.shapes)
        head = flatten({name: params[name] for name in self.head.shapes})
        centroid = head.new_zeros(len(head), self.classes, self.width)
        server = {
            c.MODEL: flatten({name: params[name] for name in self.body_shapes}),
            "head": head[:, None].repeat(1, self.num_devices, 1),
            "centroid": centroid,
            "known": torch.zeros_like(centroid[:, :, 0]),
        }
        return server, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        blocks = {name: server[name][cohort.trial] for name in (c.MODEL, "centroid", "known")}
        head = server["head"].flatten(0, 1)[cohort.flat_index]
        return c.Broadcast(blocks | {"head": head}, per_device=True)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        blocks, work = broadcast.tensors, context.local_data
        body = copy_params(unflatten(blocks[c.MODEL], self.body_shapes))
        head = copy_params(unflatten(blocks["head"], self.head.shapes))
        full, counts = work.load_full_batch(), work.count_classes()
        moment, variance = compute_statistics(*self.sum_features(body, full), counts)

        rate = context.gather_hyper("learning_rate")
        own_rate = context.gather_hyper("personal_learning_rate")
        for step in range(max(1, work.steps // HEAD_SHARE)):
            batch = work.draw_batch(step, draw_index=1)
            seen = c.Batch(self.compute_features(body, batch.x), batch.y, batch.weight)
            self.head.take_sgd_step_(head, seen, own_rate)
        loss = torch.zeros_like(rate)
        pull = context.gather_hyper("penalty")[:, None] * blocks["known"] / self.width
        for step in range(work.steps):
            one, grads = self._compute_body_gradients(
                body, head, work.draw_batch(step), blocks["centroid"], pull
            )
            descend_(body, grads, rate)
            loss += one

        reports = {
            "head": flatten(head),
            "moment": moment,
            "variance": variance[:, None],
            "centroid": self.sum_features(body, full)[0] / counts.clamp_min(1)[:, :, None],
            "count": counts.to(moment.dtype),
        }
        both = body | head
        state = add_prefix("personal", {name: both[name] for name in self.model.shapes})
        sent = build_increment(body, broadcast, self.body_shapes)
        return state, (*sent, c.Group(reports)), loss / work.steps

    def compute_features(self, body: c.Tensors, x: Tensor) -> Tensor:
        """Compute the features f(x) [n, B, d]."""
        head = self.model.make_identity_head(next(iter(body.values())))
        return self.model.logits(body | head, x)

    def sum_features(self, body: c.Tensors, full: c.Batch) -> tuple[Tensor, Tensor]:
        """Sum the features of all samples.

        Parameters
        ----------
        body : dict of str to Tensor [n, *shape]
            Parameters of the extractor.
        full : Batch
            All samples of the devices.

        Returns
        -------
        Tensor [n, C, d]
            Sum of the features of each class.
        Tensor [n]
            Sum of |f(x)|^2.
        """
        rows = len(full.y)
        total = full.x.new_zeros(rows, self.classes, self.width)
        square = full.x.new_zeros(rows)
        classes = torch.arange(self.classes, device=full.y.device)[:, None]
        for which, piece in split_into_pieces(full):
            seen = (
                self.compute_features(select_rows(body, which), piece.x)
                * get_sample_mask(piece)[:, :, None]
            )
            member = (piece.y[:, None] == classes).to(seen.dtype)
            add_(total, which, torch.bmm(member, seen))
            add_(square, which, seen.square().sum((1, 2)))
        return total, square

    def _compute_body_gradients(
        self, body: c.Tensors, head: c.Tensors, batch: c.Batch, centroid: Tensor, pull: Tensor
    ) -> tuple[Tensor, c.Tensors]:
        """Compute the loss [n], and the gradient of the aligned loss by the extractor.

        pull [n, C]: factor of |f(x) - c_y|^2 for each class y.
        """

        def compute_objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
            last, bias = (head[name].clone() for name in (self.last.weight, self.last.bias))
            seen = self.compute_features(leaves, batch.x)
            scores = torch.baddbmm(bias[:, None], seen, last)
            loss = self.model.loss.compute_mean(scores, batch)
            target = centroid.clone().gather(1, batch.y[:, :, None].expand_as(seen))
            apart = (seen - target).square().sum(2) * pull.clone().gather(1, batch.y)
            aligned = apart.mean(1) if batch.weight is None else (apart * batch.weight).sum(1)
            return loss, loss + aligned

        return differentiate(compute_objective, body, batch)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort = context.cohort
        each, delivered_mask = get_delivered(received, 1)
        reports = {
            name: scatter_to_table(block, delivered_mask, cohort) for name, block in each.items()
        }
        total = reports["count"].sum(1)
        weighted = torch.einsum("skc,skcd->scd", reports["count"], reports["centroid"])
        mean = weighted / total.clamp_min(1.0)[:, :, None]
        has_report = total > 0
        mixed = torch.bmm(
            compute_mixing_weights(
                reports["moment"],
                reports["variance"][:, :, 0],
                find_delivered(delivered_mask, cohort),
            ),
            reports["head"],
        )
        rows = mixed.flatten(0, 1)[cohort.flat_index]
        return {
            c.MODEL: apply_mean_increment(server, received, context.hyper),
            "head": update_table(server["head"], rows, delivered_mask, cohort),
            "centroid": torch.where(has_report[:, :, None], mean, server["centroid"]),
            "known": torch.where(has_report, 1.0, server["known"]),
        }

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        return {"personal": make_device_view(self.model, devices, "personal")}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the statistics and of the steps.

        Two passes of all samples through the extractor give features, their class sums, and squares
        in the first pass. The head's steps compute the features again. The extractor's steps leave
        out gradients by the head.
        """
        head, body = self.head.num_params, self.model.num_params - self.head.num_params
        by_head = 2.0 * self.head.macs
        features = 2.0 * self.model.macs - by_head
        passes = (2.0 * features + 4.0 * self.width) * workload.num_samples
        on_head = (
            features + self.head.count_training_flops(1.0)
        ) * workload.effective_batch_size + 2.0 * head
        aligned = 5.0 * self.width - by_head  # f(x) - c_y, its square, and the gradient
        on_body = (
            self.model.count_training_flops(workload.effective_batch_size)
            + aligned * workload.effective_batch_size
            + 2.0 * body
        )
        head_steps = np.maximum(1, workload.num_steps // HEAD_SHARE)
        return passes + head_steps * on_head + workload.num_steps * on_body + body


def compute_statistics(total: Tensor, square: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the statistics of the features.

    Parameters
    ----------
    total : Tensor [n, C, d]
        Sum of the features of each class.
    square : Tensor [n]
        Sum of |f(x)|^2.
    counts : Tensor [n, C]
        Samples of each class.

    Returns
    -------
    Tensor [n, C, d]
        Scaled class means h.
    Tensor [n]
        Variance V.
    """
    samples = counts.sum(1)
    moment = total / samples[:, None, None]
    variance = (square / samples - moment.square().sum((1, 2))) / samples
    return moment, variance.clamp_min(0.0)


def compute_mixing_weights(moment: Tensor, variance: Tensor, present: Tensor) -> Tensor:
    """Compute the weights of the heads in the mixtures.

    Parameters
    ----------
    moment : Tensor [S, K, C, d]
        Scaled class means h.
    variance : Tensor [S, K]
        Variance V.
    present : Tensor [S, K]
        1 for devices with a delivered update.

    Returns
    -------
    Tensor [S, K, K]
        Weights a, row i for the head of device i.
    """
    trials, devices = present.shape
    h = moment.flatten(2).double()
    h = h - h.mean(1, keepdim=True)  # only differences matter
    gram = torch.bmm(h, h.mT)
    square = gram.diagonal(dim1=1, dim2=2)
    # <h_i - h_j, h_i - h_l> for all i, j, l
    q = gram[:, None] - gram[:, :, :, None] - gram[:, :, None] + square[:, :, None, None]
    q = q + torch.diag_embed(variance.double())[:, None]
    weights = np.zeros((trials, devices, devices))
    for trial, there in enumerate((present > 0).cpu().numpy()):
        for row, matrix in enumerate(q[trial].cpu().numpy()) if there.any() else ():
            weights[trial, row, there] = solve_simplex_program(matrix[np.ix_(there, there)])
    return torch.from_numpy(weights).to(moment)


def solve_simplex_program(q: np.ndarray) -> np.ndarray:
    r"""Minimise x^T Q x over the probability simplex.

    Parameters
    ----------
    q : ndarray [K, K]
        Symmetric, positive semidefinite matrix.

    Returns
    -------
    ndarray [K]
        Minimiser; NaN for a matrix that is not finite.

    Notes
    -----
    With the Cholesky factor Q = L L^T the minimiser is in proportion to that of a least-squares
    problem:

    .. math::

        \min_{x \ge 0} \|L^T x - L^{-1} 1\|^2
    """
    if not np.isfinite(q).all():
        return np.full(len(q), np.nan)
    q = q / max(q.diagonal().max(), np.finfo(float).tiny) + RIDGE * np.eye(len(q))
    root = np.linalg.cholesky(q)
    aim = solve_triangular(root, np.ones(len(q)), lower=True)
    x, _ = nnls(root.T, aim, maxiter=100 * len(q))
    return np.asarray(x / x.sum())
