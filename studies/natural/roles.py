"""Natural roles: personalised methods on text of Shakespeare's roles, each at its best settings
on validation data, against training alone, fine-tuned averaging and three controls.

    for f in studies/natural/natural_roles*.yaml; do otafl sweep $f; done
    python -m studies.natural.roles [results] [--figure natural_roles.png]

The text is read for the controls of each role (`otafl data get shakespeare`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import xarray as xr

from studies.common.tables import (
    command,
    expand_points,
    parse_study_arguments,
    print_head,
    print_row,
)
from studies.natural.shared import LINKS, Study, format_difference, run_study

STUDY = Study(
    name="natural_roles",
    title="Bits per character",
    people="roles",
    metric="perplexity",
    convert=np.log2,
    controls=("role's counts", "role's frequencies", "all roles' counts"),
    more=("natural_roles_work",),
    hidden=("role's frequencies",),
    decimals=3,
)


def list_contexts(x: np.ndarray, length: int, tokens: int) -> np.ndarray:
    """Number the last `length` tokens at each position of sequences [n, L]; -> [n L].

    The beginning of a sequence has a token of its own before it.
    """
    before = np.full((len(x), length), tokens)
    seen = np.concatenate([before, x], 1)[:, 1:]  # ends with the position's own token
    found = np.zeros(x.shape, int)
    for lag in range(length):
        found = found * (tokens + 1) + seen[:, lag : lag + x.shape[1]]
    return found.ravel()


def predict_by_counts(
    train: tuple[np.ndarray, np.ndarray], x: np.ndarray, length: int, tokens: int
) -> np.ndarray:
    """Predict the next tokens [n L, tokens] by counts of up to `length` tokens and their next ones.

    Shorter contexts fill in by Witten and Bell's interpolation (1991): with T different tokens
    after a context that occurs N times, p(c) = (n(c) + T p_shorter(c)) / (N + T).
    """
    p = np.full((x.size, tokens), 1.0 / tokens)
    for order in range(length + 1):
        counts = np.zeros(((tokens + 1) ** order, tokens))
        np.add.at(counts, (list_contexts(train[0], order, tokens), train[1].ravel()), 1)
        n = counts[list_contexts(x, order, tokens)]
        total, kinds = n.sum(1, keepdims=True), (n > 0).sum(1, keepdims=True)
        p = np.where(total > 0, (n + kinds * p) / np.maximum(total + kinds, 1), p)
    return p


def measure_controls(ds: xr.Dataset) -> np.ndarray:
    """Measure the bits per character of the controls and of a guess on each role's test text."""
    scenario = expand_points(ds)[0].scenario
    data, length = scenario.data.read(), scenario.model.context
    assert data.owner is not None
    assert data.owner_test is not None
    x_train, x_test = data.x_train.astype(int), data.x_test.astype(int)
    rows = []
    for role in np.unique(data.owner):
        own, test = data.owner == role, data.owner_test == role
        bits = []
        for part, order in ((own, length), (own, 0), (own >= 0, length)):
            train = x_train[part], data.y_train[part]
            p = predict_by_counts(train, x_test[test], order, data.classes)
            y = data.y_test[test].ravel()
            bits.append(-np.log2(p[np.arange(len(y)), y]).mean())
        rows.append([*bits, math.log2(data.classes)])
    return np.array(rows)


def print_equal_work(outcomes: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Print differences between methods with 600 minibatches a role, where all others have 300."""
    pairs = (
        ("fedavg, twice the steps", "fedrep"),
        ("fedavg, twice the steps", "local_only, twice the rounds"),
        ("fedrep", "local_only, twice the rounds"),
        ("fedavg, twice the rounds", "local_only, twice the rounds"),
    )
    links = (LINKS[link][0] for link in outcomes)
    print_head("Differences at 600 minibatches a role", "method", "minus", *links)
    for own, base in pairs:
        cells = [
            format_difference(STUDY, methods[own], methods[base]) if own in methods else "not run"
            for methods in outcomes.values()
        ]
        print_row(own, base, *cells)


def main() -> None:
    args = parse_study_arguments(__doc__, "natural_roles.png")
    outcomes = run_study(STUDY, args.results, args.figure, measure_controls, linear=None)
    print_equal_work(outcomes)


if __name__ == "__main__":
    command(main)
