"""The split of pFedMe and pFedBreD against a plain reading of its published code, and against the
numbers that are known of it.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.decks import assign_samples

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.class_window import ClassWindow

pytestmark = pytest.mark.exact

MNIST_COUNTS = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
FASHION = ClassWindow(split_seed=(0, 1))
MNIST = ClassWindow(classes_per_device=3, split_seed=(1, 1))
CIFAR = ClassWindow(classes_per_device=3, published="cifar10", split_seed=(1, 1))


def labels_of(counts: list[int]) -> Indices:
    """Labels in a shuffled order."""
    return np.random.default_rng(5).permutation(np.repeat(np.arange(len(counts)), counts))


def split(window: ClassWindow, labels: Indices, devices: int) -> list[Indices]:
    return assign_samples(window, labels, devices, np.random.default_rng(0))


def published(labels: Indices, users: int, each: int, seeds: tuple[int, int], cifar: bool) -> list:
    """[users] of (training, test) samples, as the scripts make them: ten classes, ten groups."""
    first, rest = np.random.RandomState(seeds[0]), random.Random(seeds[1])
    pools = [[int(i) for i in range(len(labels)) if labels[i] == c] for c in range(10)]
    sizes = [len(pool) for pool in pools]
    held: list[list[int]] = [[] for _ in range(users)]
    taken = [0] * 10
    for u in range(users):
        for j in range(each):
            c = (u + j) % 10
            held[u] += pools[c][taken[c] : taken[c] + 10]
            taken[c] += 10
    props = first.lognormal(0, 2.0, (10, users, each))
    reserve = users if cifar else 1000
    props = (np.array(sizes) - reserve)[:, None, None] * props / props.sum((1, 2), keepdims=True)
    for u in range(users):
        for j in range(each):
            c = (u + j) % 10
            n = int(props[c, u // (users // 10), j])
            if cifar:
                n = 2 * (n + rest.randint(300, 600))
            else:
                a = rest.randint(10, 200)
                n = n * rest.randint(1, 10) + a
            if taken[c] + n < sizes[c]:
                held[u] += pools[c][taken[c] : taken[c] + n]
                taken[c] += n
    out = []
    for own in held:
        rest.shuffle(own)
        train = int(0.75 * len(own))
        test = len(own) - train
        out.append((own[test:], own[:test]) if cifar else (own[:train], own[train:]))
    return out


def cut(part: Indices) -> tuple[Indices, Indices]:
    kept = int(0.75 * len(part))
    return part[:kept], part[kept:]


@pytest.mark.twin
@pytest.mark.parametrize("name", ["fashion", "cifar"])
def test_equals_the_published_code(name: str) -> None:
    window, counts, users, each, seeds = {
        "fashion": (FASHION, [7000] * 10, 100, 2, (0, 1)),
        "cifar": (CIFAR, [6000] * 10, 20, 3, (1, 1)),
    }[name]
    labels = labels_of(counts)
    expected = published(labels, users, each, seeds, name == "cifar")
    parts = split(window, labels, users)
    assert len(parts) == users
    for part, (train, test) in zip(parts, expected, strict=True):
        ours = cut(part)
        if name != "cifar":
            assert_array_equal(part, [*train, *test])
        assert_array_equal(np.sort(ours[0]), np.sort(train))
        assert_array_equal(np.sort(ours[1]), np.sort(test))


def test_sizes_of_mnist() -> None:
    parts = split(MNIST, labels_of(MNIST_COUNTS), 100)
    assert sum(map(len, parts)) == 59_229
    assert sum(len(cut(part)[0]) for part in parts) == 44_383
    assert sum(len(cut(part)[1]) for part in parts) == 14_846


def test_refuses() -> None:
    with pytest.raises(UserError, match="classes_per_device: got 11; must be at most 10"):
        split(ClassWindow(classes_per_device=11), labels_of([50] * 10), 5)
    with pytest.raises(UserError, match="per_device: 100 devices need 200 samples of class 0"):
        split(ClassWindow(), labels_of([150] * 9 + [1000]), 100)
    with pytest.raises(UserError, match="per_device: 100 devices x 20 are more than the 1500"):
        split(ClassWindow(), labels_of([150] * 10), 100)
    with pytest.raises(ValueError, match="split_seed"):
        ClassWindow(split_seed=(2**32, 0))
