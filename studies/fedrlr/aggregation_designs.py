"""Ways to aggregate low-rank models with R (M + N) superposed reals a layer, on real updates: from
a trained model of rank 4, ten devices take 20 Riemannian steps each, and the squared error of what
each design recovers of the mean of the devices' models, by the SNR of a symbol and without fading,
is set beside the square of the step from the broadcast model to that mean.

    python -m studies.fedrlr.aggregation_designs          Fashion-MNIST; about a minute
"""

from __future__ import annotations

import torch
from torch import Tensor

import otafl
from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.algorithms.low_rank.low_rank_layers import get_point, name_point
from otafl.core.contracts import LocalContext
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.factorised.lowrank import LowRank, compress, project, retract, to_dense
from otafl.scenario import expand
from studies.common.tables import command

SCENARIO = {
    "name": "aggregation_designs",
    "data": {"name": "fashion_mnist"},
    "model": {"name": "mlp", "hidden": [256, 256]},
    "algorithm": {"name": "fedrlr_plus", "rank": 4},
    "transport": "ideal",
    "power": "genie",
    "training": {"rounds": 50, "local_steps": 20, "batch_size": 6},
    "engine": {"dtype": "float64"},
}
K, RANK, DRAWS, SNRS = 10, 4, 20, (25, 10, 0, -10)


@torch.inference_mode()
def draw_updates() -> list[tuple[LowRank, LowRank]]:
    """Of each layer the broadcast point [1, ...] and the devices' points [K, ...]."""
    engine = Engine(assemble(expand(otafl.load_scenario(SCENARIO)), [0]))
    for t in range(50):
        engine.run_round(t)
    parts = engine.parts
    settings = FedRLR.Settings(rank=RANK, inv_k_gradient=False, mu_schedule="constant", mu=0)
    fedrlr = FedRLR(settings, parts.model, K)
    server = {}
    for i in range(len(parts.model.layers)):
        u, s, v = get_point(engine.server, i)
        server |= name_point(i, compress([u[:, :-1] * s[:, None]], [v], [RANK])[0])
        server[f"b{i}"] = torch.einsum("nr,nr,nor->no", u[:, -1], s, v)
    cohort = engine.select_cohort(None, 50)
    numbers = {"q": 100.0, "nu": 1000.0, "c1": 0.0, "mu": 0.0}
    hyper = {name: torch.tensor([value], dtype=torch.float64) for name, value in numbers.items()}
    devices = {n: b.expand(K, *b.shape[1:]).clone() for n, b in server.items()}
    devices["weight"] = torch.full((K, 1), 1 / K, dtype=torch.float64)
    broadcast = fedrlr.broadcast(server, cohort).expand_rows(cohort, 0, K)
    work = parts.samples.training_data.select_cohort(50, cohort)
    context = LocalContext(cohort, hyper, parts.streams, 50, work)
    state, _, _ = fedrlr.run_local_update(broadcast, devices, context)
    return [(get_point(server, i), get_point(state, i)) for i in range(len(parts.model.layers))]


def balance(of: LowRank) -> tuple[Tensor, Tensor]:
    """U sqrt(S) and V sqrt(S)."""
    return of.u * of.s.sqrt()[:, None], of.v * of.s.sqrt()[:, None]


def code_randomly(at: LowRank, own: LowRank) -> tuple[Tensor, Tensor]:
    """FedRLR, eqs. (25)-(26): a random sign precoder for each device."""
    u, v = balance(own)
    f = (2.0 * torch.randint(0, 2, (K, RANK, RANK), generator=NOISE) - 1.0).double() / RANK**0.5
    return u @ f, v @ f


def use_common_frame(at: LowRank, own: LowRank) -> tuple[Tensor, Tensor]:
    """The same precoder for all: the factors as they are."""
    return balance(own)


def align(at: LowRank, own: LowRank) -> tuple[Tensor, Tensor]:
    """Factors turned into the broadcast model's frame first (orthogonal Procrustes)."""
    (u, v), (u0, v0) = balance(own), balance(at)
    a, _, bt = torch.linalg.svd(u.mT @ u0 + v.mT @ v0)
    return u @ a @ bt, v @ a @ bt


def compute_increments(at: LowRank, own: LowRank) -> tuple[Tensor, Tensor]:
    """Of the aligned factors."""
    (u, v), (u0, v0) = align(at, own), balance(at)
    return u - u0, v - v0


def project_to_tangent(at: LowRank, own: LowRank) -> tuple[Tensor, Tensor]:
    """Increments projected on the tangent space at the broadcast model: A and B of FedRLR+."""
    moved = to_dense(own) - to_dense(at)
    a, b = moved @ at.v, moved.mT @ at.u
    return a, b - at.v @ (at.v.mT @ b)


def multiply_factors(at: LowRank, a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


def multiply_scaled(at: LowRank, a: Tensor, b: Tensor) -> Tensor:
    """Eq. (31): the product of the sums over K."""
    return K * a @ b.T


def multiply_moved(at: LowRank, a: Tensor, b: Tensor) -> Tensor:
    u0, v0 = balance(at)
    return (u0[0] + a) @ (v0[0] + b).T


def retract_change(at: LowRank, a: Tensor, b: Tensor) -> Tensor:
    step = project(at, (a + at.u[0] @ (b.T @ at.v[0]))[None], (at.v[0] @ (a.T @ at.u[0]) + b)[None])
    return to_dense(retract([at], [step])[0])[0]


DESIGNS = {
    "random linear coding (FedRLR)": (code_randomly, multiply_scaled),
    "one precoder for all": (use_common_frame, multiply_factors),
    "factors in a shared frame": (align, multiply_factors),
    "their increments": (compute_increments, multiply_moved),
    "increments in the tangent space (FedRLR+)": (project_to_tangent, retract_change),
}
NOISE = torch.Generator().manual_seed(0)


def main() -> None:
    layers = draw_updates()
    means = [to_dense(own).mean(0) for _, own in layers]
    model = sum(float(mean.square().sum()) for mean in means)
    step = sum(
        float((mean - to_dense(at)[0]).square().sum())
        for mean, (at, _) in zip(means, layers, strict=True)
    )
    print(
        f"squared step over squared model: {step / model:.1e}; squared errors over squared step:\n"
    )
    print("| design | no noise | " + " | ".join(f"{snr} dB" for snr in SNRS) + " |")
    print("|" + "---|" * (2 + len(SNRS)))
    for name, (encode, decode) in DESIGNS.items():
        cells = []
        for snr in (float("inf"), *SNRS):
            error = 0.0
            for _ in range(DRAWS):
                sent = [encode(at, own) for at, own in layers]
                flat = torch.cat([part.flatten(1) for pair in sent for part in pair], 1)
                spread = (0.5 * float(flat.square().mean()) / 10 ** (snr / 10)) ** 0.5 / K
                for mean, (at, _), pair in zip(means, layers, sent, strict=True):
                    got = (
                        part.mean(0) + spread * torch.randn(part[0].shape, generator=NOISE)
                        for part in pair
                    )
                    error += float((decode(at, *got) - mean).square().sum()) / DRAWS
            cells.append(f"{error / step:.1e}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    command(main)
