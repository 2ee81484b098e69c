"""Every scenario that comes with otafl, on the uplink that it names: power within budget, and the
aggregation error that follows from what `output.save_link` keeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from support.scenarios import SCENARIO_FILES
from torch import Tensor

from otafl.core.contracts import Group, Tensors
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.models.base import flatten
from otafl.scenario import Point, expand, load_scenario, make_stack_key
from otafl.uplink.delivery import Delivery


def uplinks(path: Path) -> list[Point]:
    """A point of every stack of a scenario that superposes symbols to one server, on digits, in
    double precision; empty for a scenario that has none."""
    tree = yaml.safe_load(path.read_text())
    if "extends" in tree:  # whose base has a turn of its own
        return []
    data, model = tree["data"], tree["model"]
    kept = {key: data[key] for key in ("server",) if key in data}
    tree["data"] = {"name": "digits", "train_samples": 400} | kept
    if "alphabet" in data:  # its model is one of texts, and its server has users
        start = {key: model[key] for key in ("start",) if key in model}
        tree["model"] = {"name": "mlp", "hidden": [8]} | start
        tree["data"] |= {key: {"fraction": 0.2} for key in kept}
    elif "patch" in model:
        model["patch"] = 4  # of images of 8 x 8 pixels
    sweep = tree.get("sweep", {})
    for keys in (sweep, *sweep.get("zip", ())):
        for key in [key for key in keys if key.split(".")[0] == "data"]:
            del keys[key]
    tree |= {"engine": {"dtype": "float64", "device": "cpu"}, "output": {"save_link": True}}
    tree["training"] = {"rounds": 1, "batch_size": 5}
    first = {make_stack_key(p.scenario): p for p in reversed(expand(load_scenario(tree)))}
    single = [p for p in first.values() if p.scenario.topology.name == "star"]
    return [p for p in single if p.scenario.transport.name == "over_the_air"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCENARIO_FILES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("fewest_states")
def test_power_and_error(path: Path) -> None:
    """The noise's part of the error has the variance 2 P v^2, and 4 v times the distortion beside
    it; 6 standard deviations, for at most 60 uplinks."""
    for point in uplinks(path):
        engine = Engine(assemble([point], [0]))
        payload = spied(engine)
        engine.run_round(0)
        link = engine.link[0]
        saved = {name[:-2]: value[0] for name, value in link.items() if name.endswith("/0")}
        if not saved and point.scenario.algorithm.name == "local_only":
            continue
        p, m, active, w = (saved[name] for name in ("p", "m", "active", "weight"))
        budget = engine.parts.link.budget.budget[0]
        if point.scenario.power.power_constraint == "peak":
            assert (p.abs().square() * m / budget).max() <= 1 + 1e-9, point.coords
        taken = engine.means.take()
        if not active.any() or "h/1" in link:  # of two groups the error is told in sum alone
            continue
        c = (saved["h"] * p).real / saved["eta"].sqrt()[:, None]
        linear = payload[0].weighting == "mean"  # else rows carry their weight
        share = (w * active).sum(-1, keepdim=True) if linear else torch.ones(1, 1)
        w = w if linear else torch.ones_like(w)
        v = (saved["noise"] / saved["eta"])[0]
        if payload[0].mask is not None:
            by_coordinate(payload[0], c[0] * active[0], w, active[0], v, taken, point)
            continue
        off = c * w * active / share - w
        distortion, target = (
            torch.einsum("qk,qkl,ql->", a, saved["gram"].real, a) for a in (off, w.expand_as(off))
        )
        assert len(saved["eta"]) == 1  # none of them cuts the payload
        symbols, halves = taken["uplink_symbols"].item(), point.scenario.transport.quadrature
        reals = symbols * (1 + halves)
        if point.scenario.algorithm.name == "fedavg" and point.scenario.codec.name == "identity":
            reals = sum(block[0].numel() for block in engine.server.values())
            assert symbols == -(-reals // (1 + halves))
        if linear:
            v = v / (len(w[w > 0]) * share[0, 0]) ** 2
        expected = distortion + reals * v
        bound = 6 * (2 * reals * v**2 + 4 * v * distortion).sqrt()
        assert abs(taken["aggregation_nmse"][0] * target - expected) <= bound, point.coords


def spied(engine: Engine) -> list[Group]:
    """Where the groups of the payload that is transmitted will be."""
    groups: list[Group] = []
    transport = engine.parts.link.transport
    carry = transport.transmit

    def spy(delivery: Delivery) -> None:
        groups.extend(delivery.payload)
        carry(delivery)

    transport.transmit = spy  # type: ignore[method-assign]
    return groups


def by_coordinate(
    group: Group, c: Tensor, w: Tensor, active: Tensor, v: Tensor, taken: Tensors, point: Point
) -> None:
    """The same of sums that are divided, coordinate by coordinate, by the weight that knows it. All
    devices take part in their order; c: [K] gains, 0 of silent ones. v: variance of the sum's
    noise over the scale."""
    mask = flatten(group.full_mask or {})
    sent, w = flatten(group.tensors) * mask, w.reshape(-1, 1)
    w, c, active = w[w[:, 0] > 0], c[w[:, 0] > 0, None], active[w[:, 0] > 0, None]
    known, reached = (w * mask).sum(0), (w * active * mask).sum(0)
    target = (w * sent).sum(0) / known.clamp_min(1e-30)
    got = (c * w * sent).sum(0) / reached.clamp_min(1e-30)
    noise = v / (len(w) * reached.clamp_min(1e-30)).square() * (reached > 0)
    off = got - target
    bound = 6 * (2 * noise.square() + 4 * noise * off.square()).sum().sqrt()
    error = taken["aggregation_nmse"][0] * target.square().sum()
    assert abs(error - (off.square() + noise).sum()) <= bound, point.coords
