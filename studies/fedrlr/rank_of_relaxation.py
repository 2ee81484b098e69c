"""Rank of a layer under the nuclear norm and on the manifold, iteration by iteration: the FedRLR
paper's Fig. 2, of 1000 x 2000 weights and target rank 40.

    python -m studies.fedrlr.rank_of_relaxation [--out results/rank_of_relaxation.png]

The paper names no loss, so this one is ours: a linear layer learns a teacher of the same size, f =
|x (Theta - Theta*)|^2 / 2 over fresh minibatches of 500 samples x ~ N(0, I), with no noise on the
labels. Theta* has full rank and singular values proportional to 1/i, at the scale where the paper's
lambda = 1500 is about what a search for rank 40 would find. Both methods start at the same point
of rank 40 and see the same samples: proximal SGD by `threshold_singular_values`, Riemannian SGD by
`project` and `retract`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch import Tensor

from otafl.factorised.lowrank import LowRank, Tangent, project, retract, to_dense
from otafl.factorised.shrinkage import count_rank, threshold_singular_values
from otafl.plots import COLOURS, LINES
from studies.common.tables import command

M, N, RANK, SCALE = 1000, 2000, 40, 815.0  # SCALE: singular value number RANK of the teacher
BATCH, STEP, ITERATIONS, SETTLED = 500, 0.1, 40, 15
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/rank_of_relaxation.png"))
    out = parser.parse_args().out
    generator = torch.Generator().manual_seed(0)
    left, right = draw_orthonormal(generator, M)
    sigma = SCALE * RANK / torch.arange(1, M + 1)
    teacher = (left * sigma) @ right.mT
    left, right = draw_orthonormal(generator, RANK)
    start = LowRank(left, torch.full((1, RANK), SCALE), right)
    print(f"| method | all ranks | ranks after {SETTLED} | of these at {RANK} | error |")
    print("|---|---|---|---|---|")
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for strength, line in {None: "-", **LAMBDAS}.items():
        ranks, error = train(start, teacher, strength)
        name = "Riemannian" if strength is None else f"nuclear norm, λ = {strength:g}"
        late = ranks[SETTLED:]
        spans = f"{min(ranks)} to {max(ranks)} | {min(late)} to {max(late)}"
        share = f"{100 * late.count(RANK) / len(late):.0f} %"
        print(f"| {name} | {spans} | {share} | {error:.3f} |", flush=True)
        if line:
            colour = COLOURS[LINES.index(line)]
            axis.plot(range(1, ITERATIONS + 1), ranks, color=colour, ls=line, label=name)
    best = float(sigma[RANK:].norm() / sigma.norm())
    print(f"\nThe best matrix of rank {RANK} has error {best:.3f}.\n\n{out}")
    axis.set(xlabel="iteration", ylabel="rank", ylim=(0, None))
    axis.grid(color="0.9", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    command(main)
