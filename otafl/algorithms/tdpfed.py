"""TDPFed: personalised federated learning with CP-factorised local models.

Q. Wang, J. Jin, X. Liu, H. Zong, Y. Shao, Y. Li, "Tensor Decomposition based Personalized Federated
Learning", Algorithm 1. Every device has a dense personal model theta and CP factors A of each
layer's weight. A local round takes s Nesterov steps on f(theta) + lambda/2 |theta - [[A]]|^2 with
one minibatch (15), then s' Adam steps that pull the factors to theta (19), (25). Only factors and
biases travel. The server averages factors (AFM, 20), or tensors that it factors again (ACT, 21-22),
or coordinates of the tensors' changes in the frame of the broadcast factors, which superpose
without AFM's ambiguity (`factorised.cp_aggregation`, not in the paper).

Where (17) and the appendix differ, the appendix is right: the factors' gradient is (25). A bias is
sent whole; its centre is the local bias, and Adam trains it on lambda (b - theta_b).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.algorithms.adam import PenaltyAdam
from otafl.algorithms.config_tensor import TDPFedConfig
from otafl.algorithms.low_rank_layers import layered
from otafl.algorithms.parameters import column, copied, device_view, named, own
from otafl.algorithms.prox import nesterov_steps
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised import cp, cp_aggregation
from otafl.models import cp_layers
from otafl.models.base import LayeredModel, Model, Shapes, flatten, unflatten
from otafl.models.span import difference, form_of

BATCH = 20
"""Samples of a minibatch, by which the operations of local work are counted."""


class TDPFed:
    """Server blocks, a trial's factors and biases: "<weight>.A<n>" [S, R, I_n] and "<bias>"
    [S, outputs]; with act "residual" [S], and where they are sent the tensors, "tensor" [S, P].
    Device blocks: "personal.<parameter>" [S, K, *shape] and, as at the server, "local.<block>"."""

    def __init__(self, config: TDPFedConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = layered(model, config.name)
        self._modes = [cp_layers.modes(layer) for layer in self.model.layers]
        self.ranks = ranks_of(config, self.model)
        self._shapes: Shapes = {}
        for layer, modes, rank in zip(self.model.layers, self._modes, self.ranks, strict=True):
            for n, size in enumerate(modes, 1):
                self._shapes[f"{layer.weight}.A{n}"] = (rank, size)
            self._shapes[layer.bias] = (layer.outputs,)
        self._weights: Shapes = {
            layer.weight: (layer.inputs, layer.outputs) for layer in self.model.layers
        }
        self._devices = devices

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """Factors whose tensors have He's variance; biases zero."""
        server: Blocks = {}
        for layer, modes, rank in zip(self.model.layers, self._modes, self.ranks, strict=True):
            deviation = cp.start_deviation(layer.inputs, rank, len(modes))
            for n, size in enumerate(modes, 1):
                name = f"{layer.weight}.A{n}"
                server[name] = deviation * streams.normal(f"init/{name}", 0, (rank, size))
            first = server[f"{layer.weight}.A1"]
            server[layer.bias] = first.new_zeros(len(first), layer.outputs)
        devices = named("local", server) | named("personal", self._dense(server))
        devices = {name: block[:, None] for name, block in devices.items()}
        if self.config.aggregation == "act":
            server["residual"] = first.new_zeros(len(first))
        if self.config.downlink == "both":
            server["tensor"] = self._tensors(server)
        return server, devices

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        """Factors and biases side by side, and the tensors where they are sent."""
        model = flatten({name: server[name] for name in self._shapes})
        if self.config.downlink == "both":
            return Broadcast({"model": model, "tensor": server["tensor"]})
        return Broadcast({"model": model})

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        """Algorithm 1, lines 6 to 11."""
        step = hyper["personal_learning_rate"][cohort.trial]
        penalty = hyper["penalty"][cohort.trial]
        start = unflatten(broadcast.blocks["model"], self._shapes)
        local = copied(start)
        centre_params = self._dense(local)
        form = form_of(self.model)
        theta = form.hold(centre_params | self._received_tensors(broadcast))
        adam = PenaltyAdam(local, hyper["factor_learning_rate"][cohort.trial], penalty)
        residuals = {name: torch.empty_like(centre_params[name]) for name in self._weights}
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch = work.batch(index)
            centre = form.hold(centre_params)
            span = form.span(batch, theta, difference(centre, theta, out=centre))
            there = span.origin + span.directions[0]
            point, batch_loss = nesterov_steps(  # eq. (15)
                span, span.origin, there, step, penalty, self.config.solver_steps
            )
            loss += batch_loss
            span.write_(point, theta)
            target = form.blocks(theta)
            for _ in range(self.config.factor_steps):  # eqs. (19), (25)
                if self.config.factor_update == "joint":
                    adam.step_(self._gradients(local, target, residuals))
                else:
                    self._alternate_(adam, local, target, residuals)
            if index + 1 < work.steps:
                centre_params = self._dense(local)
        personal = {name: block.clone() for name, block in target.items()}
        state = named("personal", personal) | named("local", local)
        return state, self._payload(local, start), loss / work.steps

    def _gradients(self, local: Blocks, target: Blocks, memory: Blocks) -> Blocks:
        """Gradients over lambda of every block: of factors (25), of a bias b - theta_b."""
        out: Blocks = {}
        for layer in self.model.layers:
            name = layer.weight
            by = cp.factor_gradients(target[name], self._factors(local, name), out=memory[name])
            out |= dict(zip(self._names(name), by, strict=True))
            out[layer.bias] = local[layer.bias] - target[layer.bias]
        return out

    def _alternate_(self, adam: PenaltyAdam, local: Blocks, target: Blocks, memory: Blocks) -> None:
        """One Adam step of each factor in turn, from a gradient that knows the factors before: a
        residual for each, N times the work of a joint step."""
        adam.tick()
        for layer in self.model.layers:
            for mode, name in enumerate(self._names(layer.weight)):
                by = cp.factor_gradients(
                    target[layer.weight],
                    self._factors(local, layer.weight),
                    out=memory[layer.weight],
                )
                adam.move_(name, by[mode])
            adam.move_(layer.bias, local[layer.bias] - target[layer.bias])

    def _payload(self, local: Blocks, start: Blocks) -> Payload:
        if self.config.sends == "factors":
            sent = {name: block.clone() for name, block in local.items()}
        else:
            sent = {name: block - start[name] for name, block in local.items()}
        if self.config.aggregation == "tangent":
            for name in self._weights:
                moved = cp_aggregation.coordinates(
                    self._factors(start, name), self._factors(local, name)
                )
                sent |= dict(zip(self._names(name), moved, strict=True))
        if self.config.weights == "samples":
            return (Group(sent),)
        share = {name: block.div_(self._devices) for name, block in sent.items()}
        return (Group(share, weighting="none"),)

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        beta = hyper["server_learning_rate"]
        if self.config.aggregation == "act":
            return self._composed(server, received, cohort, beta)
        mean = dict(received.mean[0])
        if self.config.weights == "uniform":
            scale = self._uniform_scale(received, cohort)
            mean = {name: block * column(scale, block) for name, block in mean.items()}
        old = {name: server[name] for name in self._shapes}
        if self.config.sends == "factors":  # eq. (20)
            new = {n: torch.lerp(b, mean[n], column(beta, b)) for n, b in old.items()}
        else:
            steps = {n: column(beta, b) * b for n, b in mean.items()}
            new = {n: b + steps[n] for n, b in old.items()}
            if self.config.aggregation == "tangent":
                for name in self._weights:
                    at, along = self._factors(old, name), self._factors(steps, name)
                    moved = cp_aggregation.retract(at, along)
                    new |= dict(zip(self._names(name), moved, strict=True))
        if self.config.downlink == "both":
            new["tensor"] = self._tensors(new)
        return new

    def _uniform_scale(self, received: Received, cohort: Cohort) -> Tensor:
        """[S]: from the sum of all that came, each over K, to its mean. Where some is lost on the
        way the devices' weights tell how much of it."""
        count = received.count[0]
        assert isinstance(count, Tensor)
        weight = count.new_zeros(cohort.trials).index_add_(0, cohort.trial, cohort.weight)
        lost = weight / count.clamp_min(torch.finfo(count.dtype).tiny)
        return lost * self._devices / cohort.rows_of.clamp_min(1.0)

    def _composed(self, server: Blocks, received: Received, cohort: Cohort, beta: Tensor) -> Blocks:
        """ACT: eqs. (21), (22), with the step beta in between."""
        assert received.each is not None
        each = received.each[0]
        if self.config.weights == "uniform":
            each = {name: block * self._devices for name, block in each.items()}
        if self.config.sends == "increment":
            each = {name: block + server[name][cohort.trial] for name, block in each.items()}
        weight = self._weight_of(received, cohort)
        new: Blocks = {}
        residual, whole = torch.zeros_like(beta), torch.zeros_like(beta)
        tensors: Blocks = {}
        for layer, rank in zip(self.model.layers, self.ranks, strict=True):
            name, bias = layer.weight, layer.bias
            old, sent = self._factors(server, name), self._factors(each, name)
            mean = cp_aggregation.mean_tensor(sent, weight, cohort.trial, cohort.trials)
            tensors[name] = torch.lerp(cp.kruskal(old), mean, column(beta, mean))  # eq. (21)
            afm = [_moved(a, b, weight, cohort, beta) for a, b in zip(old, sent, strict=True)]
            factors, rest = cp_aggregation.factored(tensors[name], (afm, old), rank)  # eq. (22)
            new |= dict(zip(self._names(name), factors, strict=True))
            new[bias] = _moved(server[bias], each[bias], weight, cohort, beta)
            size = tensors[name].square().sum((1, 2))
            residual, whole = residual + rest.square() * size, whole + size
        new = {name: new[name] for name in self._shapes}
        new["residual"] = (residual / whole).sqrt()
        if self.config.act_theta_start == "tensor":
            new["tensor"] = flatten(tensors)
        elif self.config.downlink == "both":
            new["tensor"] = self._tensors(new)
        return new

    def _weight_of(self, received: Received, cohort: Cohort) -> Tensor:
        """[n]: of each device in the mean, summing to one over those of a trial that came."""
        weight = cohort.weight
        if self.config.weights == "uniform":
            weight = torch.ones_like(weight)
        came = None if received.came is None else received.came[0]
        if came is not None:
            weight = weight * came
        total = weight.new_zeros(cohort.trials).index_add_(0, cohort.trial, weight)
        return weight / total.clamp_min(torch.finfo(total.dtype).tiny)[cohort.trial]

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        local = {name: block.flatten(0, 1) for name, block in own(devices, "local").items()}
        model = {name: server[name] for name in self._shapes}
        return {
            "global": View(model, self._predict),
            "local": View(local, self._predict, "device"),
            "personal": device_view(self.model, devices, "personal"),
        }

    def _predict(self, blocks: Blocks, x: Tensor) -> Tensor:
        factors = {name: self._factors(blocks, name) for name in self._weights}
        return cp_layers.logits(self.model, factors, blocks, x)

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        """prox_gap: mean over devices of |theta_k - [[A_k]]| / |[[A_k]]|, weights and biases
        together. refactoring_error: of act, the relative distance of the last tensors from their
        factors (22)."""
        personal, local = own(devices, "personal"), own(devices, "local")
        gap = whole = torch.zeros(())
        shape = next(iter(personal.values())).shape[:2]
        centre = self._dense({name: block.flatten(0, 1) for name, block in local.items()})
        for name, block in centre.items():
            apart = personal[name].flatten(0, 1) - block
            gap = gap + apart.flatten(1).square().sum(1)
            whole = whole + block.flatten(1).square().sum(1)
        out = {"prox_gap": (gap / whole).sqrt().view(shape).mean(1)}
        if self.config.aggregation == "act":
            out["refactoring_error"] = server["residual"]
        return out

    def constants(self) -> dict[str, float]:
        """Of the weights; biases travel whole."""
        dense = [layer.inputs * layer.outputs for layer in self.model.layers]
        thin = [cp.reals(m, rank) for m, rank in zip(self._modes, self.ranks, strict=True)]
        middle = len(dense) // 2
        return {
            "compression_actual": sum(thin) / sum(dense),
            "compression_nominal": thin[middle] / dense[middle],
        }

    def flops(self, samples: int) -> float:
        """Of a gradient at every Nesterov step, and at every Adam step of the residual, its two
        products with Khatri-Rao factors, and some twenty operations a real of the factors."""
        solves = samples / BATCH
        each = 0.0
        for modes, rank in zip(self._modes, self.ranks, strict=True):
            dense = modes[-1] * torch.Size(modes[:-1]).numel()
            each += 6.0 * rank * dense + 20.0 * cp.reals(modes, rank)
        gradients = self.config.solver_steps * self.model.training_flops(samples)
        return gradients + solves * self.config.factor_steps * each

    def _factors(self, blocks: Blocks, weight: str) -> list[Tensor]:
        return [blocks[name] for name in self._names(weight)]

    def _names(self, weight: str) -> list[str]:
        modes = 4 if f"{weight}.A4" in self._shapes else 2
        return [f"{weight}.A{n}" for n in range(1, modes + 1)]

    def _dense(self, blocks: Blocks) -> Blocks:
        """The parameters [[A]], b of the dense model; biases are the same tensors."""
        out: Blocks = {}
        for layer in self.model.layers:
            out[layer.weight] = cp.kruskal(self._factors(blocks, layer.weight))
            out[layer.bias] = blocks[layer.bias]
        return out

    def _tensors(self, blocks: Blocks) -> Tensor:
        """[[A]] of all layers side by side."""
        return flatten({name: cp.kruskal(self._factors(blocks, name)) for name in self._weights})

    def _received_tensors(self, broadcast: Broadcast) -> Blocks:
        if "tensor" not in broadcast.blocks:
            return {}
        return unflatten(broadcast.blocks["tensor"], self._weights)


def ranks_of(config: TDPFedConfig, model: LayeredModel) -> tuple[int, ...]:
    """A rank for each layer, clipped to what represents every weight."""
    modes = [cp_layers.modes(layer) for layer in model.layers]
    ranks: Sequence[int]
    if config.rank is None:
        ranks = [cp.rank_for(sizes, config.compression_rate or 2.0) for sizes in modes]
    else:
        ranks = config.rank if isinstance(config.rank, tuple) else [config.rank] * len(modes)
    if len(ranks) != len(modes):
        raise UserError(
            f"algorithm.rank: {len(ranks)} ranks for a model of {len(modes)} layers; "
            "one for each, or a single number"
        )
    return tuple(min(r, cp.largest_rank(m)) for r, m in zip(ranks, modes, strict=True))


def _moved(old: Tensor, each: Tensor, weight: Tensor, cohort: Cohort, beta: Tensor) -> Tensor:
    """(1 - beta) old + beta times the weighted mean over each trial's rows; eq. (20)."""
    mean = torch.zeros_like(old).index_add_(0, cohort.trial, each * column(weight, each))
    return torch.lerp(old, mean, column(beta, old))
