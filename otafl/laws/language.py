r"""Check language models against the entropy rate of a Markov source.

Tokens of a first-order Markov chain with transition matrix P and stationary distribution pi have
the entropy rate

    H = -sum_i pi_i sum_j P_ij ln P_ij    nats per token,

which is the least mean loss of any model once it has seen one token. Bits are nats / ln 2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from otafl.core.contracts import MODEL
from otafl.data.dataset import DataSet
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.scoring import evaluate
from otafl.laws.bench import Bench
from otafl.laws.checks import Check, check_at_least, check_exact, check_normal, state_law
from otafl.losses.next_token import NextToken
from otafl.scenario import expand, load_scenario

TOKENS, LENGTH, SEQUENCES = 4, 20, 600
MARKOV = "Shannon 1948; Cover, Thomas 2006, theorem 4.2.4: the entropy rate of a Markov chain"
ENOUGH = 0.01
"""Nats over the entropy rate that a trained model of enough capacity has at most."""


class Source(NamedTuple):
    """A Markov chain: transition matrix [V, V], stationary distribution [V], entropy rate."""

    transition: np.ndarray
    stationary: np.ndarray
    entropy: float


@functools.cache
def build_source() -> Source:
    """Build the chain, whose rows are unequal."""
    rng = np.random.default_rng(5)
    transition = rng.dirichlet(np.full(TOKENS, 0.5), TOKENS)
    values, vectors = np.linalg.eig(transition.T)
    stationary = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    stationary /= stationary.sum()
    entropy = -(stationary[:, None] * transition * np.log(transition)).sum()
    return Source(transition, stationary, float(entropy))


def draw_sequences(count: int, seed: int) -> np.ndarray:
    """Draw sequences [count, LENGTH + 1] of the stationary chain."""
    source, rng = build_source(), np.random.default_rng(seed)
    levels = source.transition.cumsum(1)
    out = np.empty((count, LENGTH + 1), np.int64)
    out[:, 0] = rng.choice(TOKENS, count, p=source.stationary)
    for at in range(LENGTH):
        uniform = rng.random(count)[:, None]
        out[:, at + 1] = (uniform > levels[out[:, at]]).sum(1).clip(max=TOKENS - 1)
    return out


def draw_markov_source(seed: int = 0) -> DataSet:
    """Return training and test sequences of the chain, whose labels are one token further."""
    train, test = draw_sequences(SEQUENCES, 2 * seed), draw_sequences(SEQUENCES, 2 * seed + 1)
    parts = [part for one in (train, test) for part in (one[:, :-1], one[:, 1:])]
    x_train, y_train, x_test, y_test = parts
    x_train, x_test = x_train.astype(np.float32), x_test.astype(np.float32)
    return DataSet(x_train, y_train, x_test, y_test, TOKENS)


def _train(bench: Bench, context: int, rounds: int) -> Engine:
    """Train an n-gram model on the chain."""
    scenario = load_scenario(
        {
            "name": "language",
            "data": {"name": f"{__name__}:draw_markov_source"},
            "loss": "next_token",
            "model": {"name": "ngram", "context": context},
            "algorithm": {"name": "fedavg", "learning_rate": 2.0, "decay": 0.01},
            "transport": "ideal",
            "devices": {"count": 4},
            "training": {"rounds": rounds, "batch_size": 30, "local_steps": 4},
            "engine": {"dtype": "float64", "device": bench.device},
        }
    )
    engine = Engine(assemble(expand(scenario), [0]))
    for t in range(rounds):
        engine.run_round(t)
    return engine


def _measure_loss(engine: Engine, tokens: np.ndarray) -> float:
    """Return the loss of the global model on sequences [n, LENGTH + 1], as evaluations have it."""
    view = engine.parts.algorithm.build_views(engine.server, {})["global"]
    like = engine.server[MODEL]
    x = torch.from_numpy(tokens[:, :-1]).to(like)
    y = torch.from_numpy(tokens[:, 1:]).to(like.device)
    return float(evaluate(view, engine.parts.scenario.loss, x, y)[1])


def _score_by_source(tokens: np.ndarray) -> np.ndarray:
    """Return the mean loss of each sequence under the source itself, [n]."""
    transition = build_source().transition
    return np.asarray(-np.log(transition[tokens[:, :-1], tokens[:, 1:]]).mean(1))


@state_law("text: entropy rate", MARKOV)
def _entropy_rate(bench: Bench) -> Iterator[Check]:
    """Compare the loss of trained models on new sequences with the entropy rate.

    It approaches the rate from above. The sampling error is that of the source's own loss.
    """
    entropy, tokens = build_source().entropy, draw_sequences(bench.scale_size(40_000), 99)
    own = _score_by_source(tokens)
    error = float(own.std(ddof=1)) / math.sqrt(len(own))
    yield check_normal(entropy, float(own.mean()), error, "the source's own loss")
    for context in (1, 2):
        losses = [_measure_loss(_train(bench, context, rounds), tokens) for rounds in (2, 80)]
        early, late = (loss - float(own.mean()) + entropy for loss in losses)
        high = entropy + context * ENOUGH
        yield Check(entropy, late, entropy - 1e-9, high, f"context {context}")
        yield check_at_least(late, early, f"context {context} begins above")


@state_law("text: bits", "bits = nats / ln 2; a uniform model of V tokens has log2 V bits")
def _bits(bench: Bench) -> Iterator[Check]:
    """Compare the loss and the perplexity of a model without any knowledge."""
    scores = torch.zeros(1, 5, LENGTH, TOKENS, dtype=torch.float64, device=bench.torch_device)
    y = torch.arange(5 * LENGTH, device=scores.device).view(1, 5, LENGTH) % TOKENS
    loss = NextToken().compute_test_losses(scores, y).cpu().numpy()
    yield check_exact(math.log2(TOKENS), float(loss.mean()) / math.log(2.0), 1e-12)
