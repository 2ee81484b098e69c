"""Every method under another loss than its own: it trains, or is refused in a sentence."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import (
    ALGORITHMS,
    TRANSPORTS,
    delivers,
    engine,
    is_normed,
    run,
    scenario,
    scores,
)

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data import DataSet
from otafl.evaluation.recorder import Recorder
from otafl.scenario import ScenarioError

LENGTH, VOCABULARY = 5, 6

VALUES: dict[str, Any] = {
    "data": {"name": "ridge", "user_samples": 8, "user_test_samples": 6, "features": 9},
    "model": {"name": "mlp", "hidden": [4]},
}
TOKENS: dict[str, Any] = {
    "data": {"name": "contract.test_losses:sequences", "partition": "natural"},
    "loss": "next_token",
    "model": {"name": "ngram", "context": 2, "hidden": [4]},
}
CLASSES: dict[str, Any] = {"loss": "squared"}
KINDS = {"values": VALUES, "classes": CLASSES, "tokens": TOKENS}
"""Kind of labels, under another loss than cross-entropy -> the keys of a scenario."""


def sequences() -> DataSet:
    """Sequences of a first-order source, of four users."""
    rng = np.random.default_rng(0)
    tokens = np.cumsum(rng.integers(1, 3, (40, LENGTH + 1)), 1) % VOCABULARY
    x, y = tokens[:, :-1].astype(np.float32), tokens[:, 1:]
    owner = np.arange(32) % 4
    return DataSet(
        x[:32], y[:32], x[32:], y[32:], VOCABULARY, owner=owner, owner_test=np.arange(8) % 4
    )


def keys(method: str, kind: str) -> dict[str, Any]:
    """The scenario of a method under a loss, over the first transport that gives what it needs."""
    transport = next(one for one in ("over_the_air", *TRANSPORTS) if delivers(one, method))
    out = {**KINDS[kind], "algorithm": method, "transport": transport, "trials": 1}
    if is_normed(registry.load_component("algorithm", method)):
        return out | {"model": {"name": "contract.small:normed", "hidden": [4]}}
    return out


CASES = [
    (method, "classes" if is_normed(registry.load_component("algorithm", method)) else kind)
    for method, kind in zip(ALGORITHMS, itertools.cycle(KINDS), strict=False)
]


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_a_method_trains_or_is_refused_in_a_sentence(method: str, kind: str) -> None:
    try:
        one = engine(keys(method, kind))
    except UserError as error:
        refusal = str(error)
    else:
        start = scores(one)
        out = scores(run(one, 1))
        assert all(value.isfinite().all() for value in out.values())
        assert any(not torch.equal(value, start[view]) for view, value in out.items())
        return
    assert "\n" not in refusal.strip()
    assert method in refusal


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"loss": "next_token"}, "loss", "use cross_entropy or squared"),
        ({**VALUES, "loss": "cross_entropy"}, "loss", "real values .* use squared"),
        ({**VALUES, "model": "ngram"}, "model", "needs scores of a sample as a whole"),
        ({"data": "shakespeare", "model": "mlp"}, "model", "use token_lstm or ngram"),
        ({**VALUES, "algorithm": "fedpac", "transport": "digital"}, "algorithm", "centroid"),
        ({**VALUES, "data.partition": "dirichlet"}, "data.partition", "by their classes"),
        ({"data": {"name": "ridge", "partition": "iid", "own_test": True}}, "data.own_test", "use"),
        (
            {**VALUES, "faults": {"byzantine": 1, "attack": "label_flip"}},
            "faults.attack",
            "replaces classes by others",
        ),
        ({**VALUES, "training.class_losses": True}, "training.class_losses", "no classes"),
        (
            {**VALUES, "training.stop_at": {"test_accuracy": 0.5}},
            "training.stop_at.test_accuracy",
            "use test_loss or test_mse or test_r2",
        ),
        ({"training.stop_at": {"test_mse": 0.5}}, "training.stop_at.test_mse", "has no mse"),
        (
            {**VALUES, "training.stop_at": {"test_r2": 1.5}},
            "training.stop_at.test_r2",
            "got 1.5; must be less than or equal to 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    changes: dict[str, Any], key: str, said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(copy.deepcopy(changes))
    assert any(re.search(f"{key}.*{said}", line) for line in str(caught.value).splitlines())


@pytest.mark.parametrize("kind", ["values", "tokens"])
def test_a_metric_without_meaning_is_absent(kind: str) -> None:
    one = engine(KINDS[kind] | {"algorithm": "ditto", "transport": "ideal"})
    recorder = Recorder(one, 1, 3)
    recorder.take_record(0, 0.0)
    found = recorder.record().variables
    mine = {"values": {"mse", "r2"}, "tokens": {"perplexity"}}[kind]
    for name in ("accuracy", "mse", "r2", "perplexity"):
        assert (f"test_{name}" in found) == (name in mine), name
        assert (f"personal_test_{name}" in found) == (name in mine), name
    assert not any("majority" in name or "accuracy" in name for name in found)
    assert all(np.isfinite(found[f"test_{name}"]).all() for name in mine)
