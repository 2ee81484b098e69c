"""Classes by place: independent of it with strength 0, one set a part with strength 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.errors import UserError
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.by_place import ByPlace, draw_field
from otafl.engine.assembly import assemble
from otafl.scenario.loading import load_points

CLASSES, DEVICES, SAMPLES = 10, 12, 24_000
TURN = 2 * np.pi * (np.arange(DEVICES) * 5 % DEVICES + 0.3) / DEVICES
PLACES = np.random.default_rng(0).uniform(10, 90, (DEVICES, 1)) * np.stack(
    [np.cos(TURN), np.sin(TURN)], 1
)


def count(seed: int = 0, places: np.ndarray = PLACES, **settings: Any) -> np.ndarray:
    """Samples by device and class, [K, classes]."""
    labels = np.random.default_rng(1).integers(CLASSES, size=SAMPLES)
    task = PartitionTask(labels, len(places), np.random.default_rng(seed), None, places)
    parts = ByPlace(**settings).assign_samples(task)
    index = parts.sample_index
    assert len(np.unique(index)) == len(index)
    return np.stack([np.bincount(labels[part], minlength=CLASSES) for part in parts])


@pytest.mark.law
@pytest.mark.parametrize("pattern", ["sectors", "rings", "field"])
def test_strength_zero_is_iid(pattern: str) -> None:
    """Classes are independent of devices, and a device has its share of all samples; a false alarm
    in 10^4 each."""
    table = count(pattern=pattern, strength=0.0)
    assert table.sum() == SAMPLES
    assert stats.chi2_contingency(table).pvalue > 1e-4
    assert stats.chisquare(table.sum(1)).pvalue > 1e-4


@pytest.mark.exact
def test_strength_one_is_one_part_one_set_of_classes() -> None:
    """Devices of a sector have the same classes, and others none of them; those of a ring too."""
    angle = np.arctan2(PLACES[:, 1], PLACES[:, 0]) % (2 * np.pi)
    distance = np.hypot(*PLACES.T)
    parts = {
        "sectors": (angle // (np.pi / 2)).astype(int),
        "rings": np.searchsorted(np.sort(distance)[[3, 6, 9]], distance, side="right"),
    }
    for pattern, part in parts.items():
        assert sorted(set(part)) == [0, 1, 2, 3]
        held = count(pattern=pattern, parts=4) > 0
        sets = [held[part == one] for one in range(4)]
        assert all((one == one[0]).all() for one in sets)
        assert (sum(one[0].astype(int) for one in sets) == 1).all()


@pytest.mark.law
def test_strength_between_mixes() -> None:
    """Of two rings with 6 devices each, a device gets a class of its own ring with 1 / 6 and of the
    other with (1 - s) / 6, over 1 + (1 - s)."""
    table = count(pattern="rings", strength=0.6)
    inner = np.hypot(*PLACES.T).argsort()[:6]
    total = table.sum(0)
    share = table[inner].sum(0) / total
    law = np.where(share > 0.5, 1 / 1.4, 0.4 / 1.4)
    assert (law > 0.5).sum() == CLASSES / 2
    score = (share - law) / np.sqrt(law * (1 - law) / total)
    assert stats.chi2.sf((score**2).sum(), CLASSES) > 1e-4


@pytest.mark.law
def test_a_field_is_normal_with_its_correlation() -> None:
    """At distances of 0, 0.5 and 2 lengths the correlation is exp(-d)."""
    place = np.array([[3.0, -1.0], [3.0, -0.5], [5.0, -1.0]])
    field = draw_field(place, 20_000, np.random.default_rng(2))
    level = stats.norm.isf(1e-5) / np.sqrt(20_000)
    found = field @ field.T / 20_000
    law = np.exp(-np.linalg.norm(place[:, None] - place, axis=-1))
    assert (abs(found - law) < level * np.sqrt(1 + law**2)).all()
    assert stats.kstest(field[0], "norm").pvalue > 1e-4


@pytest.mark.law
def test_a_field_gives_dirichlet_mixtures() -> None:
    """Of one device far from all others, a class has a beta-distributed share."""
    generator, partition = np.random.default_rng(3), ByPlace(pattern="field", alpha=0.5)
    draws = [partition._draw_affinities(np.zeros((1, 2)), 4, generator)[0] for _ in range(2000)]
    share = np.stack(draws) / 4
    assert np.allclose(share.sum(1), 1.0)
    assert stats.kstest(share[:, 0], stats.beta(0.5, 1.5).cdf).pvalue > 1e-4


def load(**changes: Any) -> Any:
    base = {
        "name": "places",
        "data": {"name": "digits", "partition": {"name": "by_place", "pattern": "rings"}},
        "channel": {"name": "umi"},
        "devices": {"count": 6},
        "model": "softmax_regression",
        "algorithm": "fedavg",
    }
    return load_points(base | changes)[1]


@pytest.mark.exact
@pytest.mark.parametrize("deal", ["all", "each"])
def test_places_are_those_of_the_channel(deal: str) -> None:
    """Of all devices of all servers about the first one, or of those of each server."""
    for topology, servers in (("star", 1), ({"name": "cells", "servers": 3, "deal": deal}, 3)):
        parts = assemble(load(topology=topology), [0, 1])
        data, rows = parts.samples.training_data, 2 * servers
        for trial in (0, 1):
            places = parts.topology.get_positions(parts.link.channel, 0, trial)
            distance = np.hypot(*places.device_m.T)
            whole = servers == 1 or deal == "all"
            groups = distance[None] if whole else distance.reshape(servers, -1)
            held = np.stack(
                [
                    np.bincount(labels, minlength=10) > 0
                    for labels in _list_labels(data, rows)[trial * servers * 6 :][: servers * 6]
                ]
            ).reshape(len(groups), -1, 10)
            for own, classes in zip(groups, held, strict=True):
                near = own.argsort().argsort() < len(own) / 2
                assert (classes[near] == classes[near][0]).all()
                assert (classes[~near] == ~classes[near][0]).all()


def _list_labels(data: Any, rows: int) -> list[np.ndarray]:
    index, counts = data.index.view(rows * 6, -1), data.count.flatten()
    return [data.y[own[:n]].numpy() for own, n in zip(index, counts.tolist(), strict=True)]


def test_a_trace_has_the_places_of_its_start(tmp_path: Any) -> None:
    file = tmp_path / "way.csv"
    rows = [(t, k, 20 + 20 * k + (300 if t else 0), 0) for k in range(6) for t in (0, 9)]
    file.write_text("time_s,device,x_m,y_m\n" + "\n".join(",".join(map(str, row)) for row in rows))
    channel = {"name": "umi", "mobility": {"name": "trace", "path": str(file)}}
    cells = {"name": "cells", "servers": 3}
    for topology in ("star", cells):
        parts = assemble(load(channel=channel, topology=topology), [0])
        labels = _list_labels(parts.samples.training_data, 1 if topology == "star" else 3)
        held = [set(own.tolist()) for own in labels]
        assert held[0] == held[1] == held[2]
        assert not held[0] & held[3]
        assert held[:6] * (len(held) // 6) == held


@pytest.mark.exact
def test_refusals() -> None:
    with pytest.raises(UserError, match="needs the positions of the devices"):
        assemble(load(channel={"name": "rayleigh"}), [0])
    with pytest.raises(UserError, match="leaves one of 12 devices without"):
        count(parts=11, pattern="rings")
    with pytest.raises(UserError, match="'by_place' assigns samples by their classes"):
        load(data={"name": "parkinsons", "partition": "by_place"}, loss="squared", model="linear")


def test_the_same_draws_for_the_same_seed() -> None:
    one, other = (assemble(load(), [0]).samples.training_data.index for _ in range(2))
    assert torch.equal(one, other)
