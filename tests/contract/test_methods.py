"""Every registered algorithm, over every transport that gives it what it needs: the same numbers
however a run is cut up."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import IN_TURN, close, engine, equal, points, run, scores
from support.marks import first_is_fast

from otafl.core.contracts import Tensors
from otafl.engine.engine import Engine

TURNS = pytest.mark.parametrize(("algorithm", "transport"), IN_TURN)
ONE = {"float32": 1e-5, "float64": 1e-10}
"""Largest relative difference that a round may make, by precision."""


def of(algorithm: str, transport: str, **keys: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "transport": transport, **keys}


def state(one: Engine) -> Tensors:
    devices = {f"device {name}": block for name, block in one.devices.get_all().items()}
    return {**one.server, **devices}


@functools.cache
def score_rounds(algorithm: str, transport: str) -> list[Tensors]:
    """Return the scores after each of three rounds in double precision. Do not change them."""
    one, found = engine(of(algorithm, transport, **{"engine.dtype": "float64"})), []
    for t in range(3):
        one.run_round(t)
        found.append(scores(one))
    return found


@TURNS
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_shapes_and_dtypes(algorithm: str, transport: str, dtype: str) -> None:
    one = engine(of(algorithm, transport, **{"engine.dtype": dtype}))
    before = {name: (block.shape, block.dtype) for name, block in state(one).items()}
    run(one, 2)
    after = {name: (block.shape, block.dtype) for name, block in state(one).items()}
    assert after == before
    assert {block.shape[0] for block in state(one).values()} <= {3}
    assert {block.dtype for block in one.server.values() if block.is_floating_point()} <= {
        getattr(torch, dtype)
    }
    for name, view in one.parts.algorithm.build_views(one.server, one.devices.get_all()).items():
        assert name in ("global", "local", "personal", "mean") or re.fullmatch(r"level\d", name)
        rows = 3 if view.owner == "trial" else 12
        assert {block.shape[0] for block in view.params.values()} == {rows}
    assert all(value.shape[-2:] == (20, 10) for value in scores(one).values())
    assert all(value.isfinite().all() for value in scores(one).values())
    taken = one.means.take()
    assert all(value.isfinite().all() for value in taken.values())
    assert taken["train_loss"].gt(0).all()


@TURNS
def test_it_learns(algorithm: str, transport: str) -> None:
    """What is tested below is not the identity: rounds change the scores."""
    one = engine(of(algorithm, transport))
    before = scores(one)
    after = scores(run(one, 1))
    assert any(float((before[name] - after[name]).abs().max()) > 1e-4 for name in before)


@TURNS
def test_deterministic(algorithm: str, transport: str) -> None:
    keys = of(algorithm, transport)
    first, second = (run(engine(keys), 2) for _ in range(2))
    equal(state(first), state(second))
    equal(first.means.take(), second.means.take())
    other = run(engine(keys | {"seed": 8}), 2)
    one, two = scores(first), scores(other)
    assert any(not torch.equal(one[name], two[name]) for name in one)


@TURNS
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_stacked_is_alone(algorithm: str, transport: str, dtype: str) -> None:
    """Three points of two trials in one stack; trials of points run alone as well: in single
    precision all of them for one round, in double one of each point for two."""
    keys = of(algorithm, transport, **{"engine.dtype": dtype, "trials": 2})
    keys["sweep"] = {"channel.snr_db": [0, 20, 40]}
    rounds, read = 1 if dtype == "float32" else 2, points(keys)
    cells = list(itertools.product(range(3), range(2))) if rounds == 1 else [(0, 1), (1, 0), (2, 1)]
    together = run(engine(read), rounds)
    assert together.num_trials == 6
    whole = scores(together)
    report = together.means.take()
    tolerance = ONE[dtype] * rounds
    for point, trial in cells:
        alone = run(engine(read, trials=[trial], chosen=[point]), rounds)
        row = slice(2 * point + trial, 2 * point + trial + 1)
        close(scores(alone), {n: v[row] for n, v in whole.items()}, tolerance)
        for name, value in alone.means.take().items():
            np.testing.assert_allclose(value, report[name][row], rtol=tolerance, atol=1e-30)


@TURNS
def test_point_alone_with_both_trials(algorithm: str, transport: str) -> None:
    keys = of(algorithm, transport, **{"engine.dtype": "float64", "trials": 2})
    keys["sweep"] = {"seed": [1, 2]}
    whole = scores(run(engine(keys), 2))
    alone = scores(run(engine(keys, chosen=[1]), 2))
    close(alone, {name: value[2:] for name, value in whole.items()}, 2e-10)


@TURNS
@pytest.mark.parametrize("keys", [{"devices.count": 1}, {"devices.participants": 1}])
def test_cohort_of_one(algorithm: str, transport: str, keys: dict[str, int]) -> None:
    one = run(engine(of(algorithm, transport, **keys)), 2)
    assert all(value.isfinite().all() for value in scores(one).values())
    sends = float(algorithm != "local_only")
    assert one.means.take()["participants"].tolist() == [sends] * 3


@TURNS
def test_draws_do_not_depend_on_who_takes_part(algorithm: str, transport: str) -> None:
    """Each device of a smaller cohort trains and sends what it does in the whole."""
    keys = of(algorithm, transport, **{"engine.dtype": "float64"})
    everyone = engine(keys)
    cohort = everyone.select_cohort(None, 0)
    broadcast = everyone.parts.algorithm.broadcast(everyone.server, cohort)
    payload, loss = everyone.train_cohort(broadcast, cohort, 0)

    some = engine(keys)
    rows = torch.tensor([1, 3, 4, 10])
    part = cohort.take(rows)
    if broadcast.per_device:  # else it is one for all, which may say whose turn it is
        broadcast = some.parts.algorithm.broadcast(some.server, part)
    smaller, some_loss = some.train_cohort(broadcast, part, 0)

    torch.testing.assert_close(some_loss, loss[rows], rtol=1e-12, atol=0)
    compared = 0
    for whole, group in zip(payload, smaller, strict=True):
        at = torch.arange(len(cohort.trial)) if whole.row_index is None else whole.row_index
        own = rows if group.row_index is None else rows[group.row_index]
        for name, block in group.tensors.items():
            for row, cell in enumerate(own.tolist()):
                torch.testing.assert_close(
                    block[row], whole.tensors[name][at == cell][0], rtol=1e-9, atol=1e-12
                )
                compared += 1
    assert compared or not payload


@TURNS
@pytest.mark.parametrize("participants", first_is_fast([3, 4]))
def test_chunked_is_unchunked(algorithm: str, transport: str, participants: int) -> None:
    keys = of(algorithm, transport, **{"devices.participants": participants})
    keys |= {"engine.dtype": "float64"}
    chunked = run(engine(keys | {"engine.chunk_mb": 1e-6}), 2)
    if participants == 4:
        whole = score_rounds(algorithm, transport)[1]
    else:
        whole = scores(run(engine(keys), 2))
    close(scores(chunked), whole, 2e-10)


@TURNS
def test_stopped_trial_leaves_the_others_alone(algorithm: str, transport: str) -> None:
    keys = of(algorithm, transport, **{"engine.dtype": "float64"})
    one = run(engine(keys), 1)
    one.stop(1)
    for t in (1, 2):
        one.run_round(t)
    whole = score_rounds(algorithm, transport)[2]
    kept = torch.tensor([0, 2])
    close(
        {name: value[kept] for name, value in scores(one).items()},
        {name: value[kept] for name, value in whole.items()},
        3e-10,
    )
