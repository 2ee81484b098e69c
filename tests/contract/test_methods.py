"""Every registered algorithm, over a transport that gives it what it needs: the same numbers
however a run is cut up."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import (
    ALGORITHMS,
    EVERY_PAYLOAD,
    PAIRS,
    close,
    engine,
    equal,
    over_fading,
    points,
    run,
    state,
)
from contract.small import scores as compute_scores

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError

EVERY_PAIR = pytest.mark.parametrize(("algorithm", "transport"), PAIRS)
TOLERANCE = 1e-10
"""Largest relative difference that a round in double precision may make."""


def make_keys(algorithm: str, transport: str, **keys: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "transport": transport, "engine.dtype": "float64", **keys}


@functools.cache
def score_rounds(algorithm: str, transport: str) -> list[Tensors]:
    """Return the scores before and after each of three rounds. Do not change them."""
    one = engine(make_keys(algorithm, transport))
    found = [compute_scores(one)]
    for t in range(3):
        one.run_round(t)
        found.append(compute_scores(one))
    return found


@EVERY_PAIR
def test_shapes_and_dtypes(algorithm: str, transport: str) -> None:
    """In single precision, with all devices, and with one of them as the whole cohort."""
    one = engine(make_keys(algorithm, transport) | {"engine.dtype": "float32"})
    before = {name: (block.shape, block.dtype) for name, block in state(one).items()}
    run(one, 2)
    after = {name: (block.shape, block.dtype) for name, block in state(one).items()}
    assert after == before
    assert {block.shape[0] for block in state(one).values()} <= {3}
    assert {block.dtype for block in one.server.values() if block.is_floating_point()} <= {
        torch.float32
    }
    for name, view in one.parts.algorithm.build_views(one.server, one.devices.get_all()).items():
        assert name in ("global", "local", "personal", "mean") or re.fullmatch(r"level\d", name)
        rows = 3 if view.owner == "trial" else 12
        assert {block.shape[0] for block in view.params.values()} == {rows}
    scores = compute_scores(one)
    assert all(value.shape[-2:] == (20, 10) for value in scores.values())
    taken = one.means.take()
    assert all(value.isfinite().all() for value in (*scores.values(), *taken.values()))
    assert taken["train_loss"].gt(0).all()
    alone = run(engine(make_keys(algorithm, transport, **{"devices.participants": 1})), 1)
    assert all(value.isfinite().all() for value in compute_scores(alone).values())
    assert alone.means.take()["participants"].tolist() == [float(algorithm != "local_only")] * 3


@pytest.mark.parametrize("algorithm", EVERY_PAYLOAD)
def test_the_seed_decides_every_draw(algorithm: str) -> None:
    keys = make_keys(algorithm, over_fading(algorithm))
    first, second = (run(engine(keys), 2) for _ in range(2))
    equal(state(first), state(second))
    equal(first.means.take(), second.means.take())
    one, two = compute_scores(first), compute_scores(run(engine(keys | {"seed": 8}), 2))
    assert any(not torch.equal(one[name], two[name]) for name in one)


@EVERY_PAIR
def test_stacked_is_alone(algorithm: str, transport: str) -> None:
    """Two points of two trials in one stack; a trial of each point runs alone as well."""
    keys = make_keys(algorithm, transport, trials=2, sweep={"channel.snr_db": [0, 40]})
    read = points(keys)
    together = run(engine(read), 2)
    assert together.num_trials == 4
    whole, report = compute_scores(together), together.means.take()
    for point, trial in ((0, 1), (1, 0)):
        alone = run(engine(read, trials=[trial], chosen=[point]), 2)
        row = slice(2 * point + trial, 2 * point + trial + 1)
        close(compute_scores(alone), {n: v[row] for n, v in whole.items()}, 2 * TOLERANCE)
        for name, value in alone.means.take().items():
            np.testing.assert_allclose(value, report[name][row], rtol=2 * TOLERANCE, atol=1e-30)


def find_refusal(keys: dict[str, Any]) -> str:
    """The sentence by which a scenario is refused; empty for one that is valid."""
    try:
        points(keys)
    except UserError as error:
        return str(error)
    return ""


EPOCHS: dict[str, Any] = {
    "data.partition": {"name": "dirichlet", "alpha": 0.1},
    "training.local_steps": 1,
    "training.local_epochs": 1,
    "training.batch_size": 40,
}
"""Local work in epochs, in which devices take different numbers of steps."""


@pytest.mark.parametrize("work", [{}, EPOCHS], ids=["steps", "epochs"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_draws_do_not_depend_on_who_takes_part(algorithm: str, work: dict[str, Any]) -> None:
    """Each device of a smaller cohort trains and sends what it does in the whole, or the method
    refuses epochs in a sentence."""
    keys = make_keys(algorithm, over_fading(algorithm), **work)
    if refusal := find_refusal(keys):
        said = f"training.local_epochs: got 1, but algorithm '{algorithm}' .*; use training.local"
        assert re.search(said, refusal)
        return
    everyone, some = engine(keys), engine(keys)
    cohort = everyone.select_cohort(None, 0)
    steps = everyone.training.count_steps(cohort)
    assert not work or (steps is not None and len(set(steps.tolist())) > 2)
    broadcast = everyone.parts.algorithm.broadcast(everyone.server, cohort)
    payload, loss = everyone.training.train_cohort(broadcast, cohort, 0)
    rows = torch.tensor([1, 3, 4, 10] if steps is None else [int(steps.argmax())])
    part = cohort.take(rows)
    if broadcast.per_device:  # else it is one for all, which may say whose turn it is
        broadcast = some.parts.algorithm.broadcast(some.server, part)
    smaller, some_loss = some.training.train_cohort(broadcast, part, 0)
    torch.testing.assert_close(some_loss, loss[rows], rtol=1e-9, atol=0)
    compared = 0
    for whole, group in zip(payload, smaller, strict=True):
        at = torch.arange(cohort.num_rows) if whole.row_index is None else whole.row_index
        own = rows if group.row_index is None else rows[group.row_index]
        for name, block in group.tensors.items():
            for row, cell in enumerate(own.tolist()):
                found = whole.tensors[name][at == cell][0]
                torch.testing.assert_close(block[row], found, rtol=1e-8, atol=1e-11)
                compared += 1
    assert compared or not payload


@EVERY_PAIR
def test_chunked_is_unchunked_and_a_stopped_trial_disturbs_no_other(
    algorithm: str, transport: str
) -> None:
    start, *after = score_rounds(algorithm, transport)
    assert any(float((start[name] - after[0][name]).abs().max()) > 1e-4 for name in start)
    one = engine(make_keys(algorithm, transport, **{"engine.chunk_mb": 1e-6}))
    run(one, 2)
    close(compute_scores(one), after[1], 2 * TOLERANCE)
    one.stop(1)
    one.run_round(2)
    kept = torch.tensor([0, 2])
    close(
        {name: value[kept] for name, value in compute_scores(one).items()},
        {name: value[kept] for name, value in after[2].items()},
        3 * TOLERANCE,
    )
