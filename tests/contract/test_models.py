"""Every registered model under every kind of method: the same numbers however a run is cut up."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import close, engine, equal, model, run, scores

from otafl.core import registry

MODELS = [name for name in registry.names("model") if name != "mlp"]
"""The others than the base's own."""
KINDS = ["fedavg", "fedrlr", "fedrlr_plus", "fedmid", "prox_sgd", "magnitude_pruning"]
KINDS += ["pfedbred", "tdpfed", "fedem", "pfedbayes"]
"""Methods that meet a model each in its own way: dense or low-rank or factored weights, a
minibatch's span, all local data, random weights. The others do as one of these."""
LAYERED = ("fedrlr", "fedrlr_plus", "tdpfed", "pfedbayes")
"""Methods of models whose layers they know."""
UNLAYERED = ("lstm", "conv_net", "resnet", "vgg")
"""Which they refuse."""
PRESETS = ("resnet18", "resnet34", "vgg11", "vgg16")
"""Other sizes of a model that is tested under all."""
PAIRS = pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        (name, algorithm)
        for name in MODELS
        for algorithm in KINDS
        if not (name in UNLAYERED and algorithm in LAYERED)
        and not (name in PRESETS and algorithm != "fedavg")
        and not (algorithm == "pfedbayes" and name in ("cnn", "vgg8"))
    ],
)
ONE = {"float32": 1e-5, "float64": 1e-10}
"""Largest relative difference that a round may make, by precision."""


def of(name: str, algorithm: str, **keys: Any) -> dict[str, Any]:
    return {
        "model": model(name),
        "algorithm": algorithm,
        "transport": "over_the_air",
        "trials": 2,
        **keys,
    }


@PAIRS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stacked_is_alone(name: str, algorithm: str, dtype: str) -> None:
    """Two points of two trials in one stack, a trial of each alone."""
    keys = of(name, algorithm, **{"engine.dtype": dtype, "sweep": {"channel.snr_db": [0, 40]}})
    rounds = 1 if dtype == "float32" else 3
    start = scores(engine(keys))
    whole = scores(run(engine(keys), rounds))
    assert all(value.isfinite().all() for value in whole.values())
    assert any(float((whole[view] - start[view]).abs().max()) > 1e-4 for view in whole)
    for point, trial in ((0, 1), (1, 0)):
        alone = scores(run(engine(keys, trials=[trial], chosen=[point]), rounds))
        row = slice(2 * point + trial, 2 * point + trial + 1)
        close(alone, {view: value[row] for view, value in whole.items()}, ONE[dtype] * rounds)


@PAIRS
def test_deterministic(name: str, algorithm: str) -> None:
    keys = of(name, algorithm)
    equal(scores(run(engine(keys), 2)), scores(run(engine(keys), 2)))


@PAIRS
def test_chunked_is_unchunked(name: str, algorithm: str) -> None:
    keys = of(name, algorithm, **{"engine.dtype": "float64"})
    whole = scores(run(engine(keys | {"engine.chunk_mb": 1000}), 2))
    close(scores(run(engine(keys | {"engine.chunk_mb": 1e-6}), 2)), whole, 2e-10)
