"""Rank of a layer under the nuclear norm and on the manifold, iteration by iteration: the FedRLR
paper's Fig. 2, of 1000 x 2000 weights and target rank 40.

    python -m studies.fedrlr.rank_of_relaxation          writes results/rank_of_relaxation.csv
    python -m studies.fedrlr.rank_of_relaxation studies [--figure rank_of_relaxation.png]

The paper names no loss, so this one is ours: a linear layer learns a teacher of the same size, f =
|x (Theta - Theta*)|^2 / 2 over fresh minibatches of 500 samples x ~ N(0, I), with no noise on the
labels. Theta* has full rank and singular values proportional to 1/i, at the scale where the paper's
lambda = 1500 is about what a search for rank 40 would find. Both methods start at the same point
of rank 40 and see the same samples: proximal SGD by `threshold_singular_values`, Riemannian SGD by
`project` and `retract`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch import Tensor

from otafl.factorised.lowrank import LowRank, Tangent, project, retract, to_dense
from otafl.factorised.shrinkage import count_rank, threshold_singular_values
from otafl.plots import COLOURS, LINES
from studies.common.tables import (
    command,
    find_file,
    print_head,
    print_row,
    read_lines,
    write_lines,
)

M, N, RANK, SCALE = 1000, 2000, 40, 815.0  # SCALE: singular value number RANK of the teacher
BATCH, STEP, ITERATIONS, SETTLED = 500, 0.1, 40, 15
NAME, BEST = "rank_of_relaxation.csv", "best matrix"
COLUMNS = ("method", "iteration", "rank", "error")
LAMBDAS = {1000.0: "--", 1400.0: "", 1500.0: "-.", 1600.0: "", 2000.0: ":"}


def draw_normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(1, *shape, generator=generator)


def draw_orthonormal(generator: torch.Generator, rank: int) -> list[Tensor]:
    return [torch.linalg.qr(draw_normal(generator, side, rank))[0] for side in (M, N)]


def take_proximal_step(theta: Tensor, x: Tensor, teacher: Tensor, strength: float) -> Tensor:
    """Of f + strength |Theta|_*."""
    gradient = x.mT @ (x @ (theta - teacher)) / BATCH
    return threshold_singular_values(theta - STEP * gradient, torch.tensor([STEP * strength]))


def take_riemannian_step(point: LowRank, x: Tensor, teacher: Tensor) -> LowRank:
    """By way of G V and G^T U alone, G the gradient of f."""
    g = (x @ point.u * point.s[:, None] @ point.v.mT - x @ teacher) / BATCH
    tangent = project(point, x.mT @ (g @ point.v), g.mT @ (x @ point.u))
    return retract([point], [Tangent(*(-STEP * part for part in tangent))])[0]


def train(start: LowRank, teacher: Tensor, strength: float | None) -> tuple[list[int], float]:
    """Rank after each iteration and relative error at the end; on the manifold without strength."""
    generator, ranks = torch.Generator().manual_seed(1), []
    point, theta = start, to_dense(start)
    for _ in range(ITERATIONS):
        x = draw_normal(generator, BATCH, M)
        if strength is None:
            point = take_riemannian_step(point, x, teacher)
            theta = to_dense(point)
        else:
            theta = take_proximal_step(theta, x, teacher, strength)
        ranks.append(int(count_rank(theta, 1e-5)))
    return ranks, float((theta - teacher).norm() / teacher.norm())


def compute_lines() -> Iterator[tuple[str, int, int, str]]:
    """Yield method, iteration, rank, and the error at the end."""
    generator = torch.Generator().manual_seed(0)
    left, right = draw_orthonormal(generator, M)
    sigma = SCALE * RANK / torch.arange(1, M + 1)
    teacher = (left * sigma) @ right.mT
    left, right = draw_orthonormal(generator, RANK)
    start = LowRank(left, torch.full((1, RANK), SCALE), right)
    for strength in (None, *LAMBDAS):
        ranks, error = train(start, teacher, strength)
        for iteration, rank in enumerate(ranks, 1):
            yield name_method(strength), iteration, rank, f"{error:.5g}"
    best = float(sigma[RANK:].norm() / sigma.norm())
    yield BEST, ITERATIONS, RANK, f"{best:.5g}"


def name_method(strength: float | None) -> str:
    return "Riemannian" if strength is None else f"nuclear norm, λ = {strength:g}"


def print_ranks(found: dict[str, list[int]], errors: dict[str, float]) -> None:
    """Print the ranks of each method after the first iterations."""
    columns = ("method", f"ranks after {SETTLED}", f"of these at {RANK}", "error")
    print_head("Rank of a relaxation", *columns)
    for name, ranks in found.items():
        late = ranks[SETTLED:]
        share = f"{100 * late.count(RANK) / len(late):.0f} %"
        print_row(name, f"{min(late)} to {max(late)}", share, f"{errors[name]:.3f}")


def draw(found: dict[str, list[int]], path: Path) -> None:
    """Draw the ranks of some methods against the iteration."""
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for strength, line in {None: "-", **LAMBDAS}.items():
        if line:
            name, colour = name_method(strength), COLOURS[LINES.index(line)]
            axis.plot(range(1, ITERATIONS + 1), found[name], color=colour, ls=line, label=name)
    axis.set(xlabel="iteration", ylabel="rank", ylim=(0, None))
    axis.grid(color="0.9", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("results", nargs="?", type=Path, help="folder of computed ranks, to print")
    parser.add_argument("--out", type=Path, default=Path("results") / NAME, help="file to write")
    parser.add_argument("--figure", type=Path, default=Path("rank_of_relaxation.png"))
    args = parser.parse_args()
    if args.results is None:
        write_lines(args.out, COLUMNS, compute_lines())
    lines = read_lines(args.out if args.results is None else find_file(args.results, NAME))
    found: dict[str, list[int]] = {}
    for line in lines:
        if line["method"] != BEST:
            found.setdefault(line["method"], []).append(int(line["rank"]))
    errors = {line["method"]: float(line["error"]) for line in lines}
    print_ranks(found, errors)
    print(f"\nThe best matrix of rank {RANK} has error {errors[BEST]:.3f}.")
    draw(found, args.figure)


if __name__ == "__main__":
    command(main)
