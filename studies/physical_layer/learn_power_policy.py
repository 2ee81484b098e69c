"""Learns transmit powers and the receive scaling through the differentiable uplink.

A small network that treats all devices alike sees one fading state: how well each device could
arrive, q_k = P_k g_k / m_k, and the power m_k of its symbols over the noise N. It answers with
|p_k| within the budget and with eta, and descends on the logarithm of the closed-form error, so
that good and bad states count alike. On held-out states it is compared with the optimum
(`cao_static`), full power and channel inversion. `otafl.over_the_air(updates, power=policy)` takes
what is learned as it is.

    python -m studies.physical_layer.learn_power_policy --steps 3000 --out results/learned_power.png
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from otafl.core.contracts import Link
from otafl.own_loop.differentiable import aggregation_mse, scale_to_budget
from otafl.power.base import cophase
from otafl.power.inversion import ChannelInversion
from otafl.power.least_error import CaoStatic, Full
from studies.common.tables import command

SNRS_DB = (0.0, 10.0, 20.0)
HELD_OUT = 10_000  # states at each SNR


class LearnedPolicy(nn.Module):
    """`policy(link) -> (p, eta)`. The order of the devices changes nothing but the order of p: all
    go through the same layers, and what they have in common is pooled.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.device = make_layers(2, width, width)
        self.scaling = make_layers(3 * width, 2 * width, 1)
        self.share = make_layers(3, width, 1)

    def forward(self, link: Link) -> tuple[Tensor, Tensor]:
        budget = link.budget[:, None].expand_as(link.symbol_power)
        q = (budget * link.h.abs().square() / link.symbol_power).log()
        m = (link.symbol_power / link.noise_variance[:, None, None]).log()
        each = self.device(torch.stack([q, m], -1))
        by_power = m.softmax(-1)[..., None]
        pooled = torch.cat([each.mean(-2), each.amax(-2), (by_power * each).sum(-2)], -1)
        log_eta = self.scaling(pooled)
        share = self.share(torch.stack([log_eta - q, q, m], -1))[..., 0]
        p = cophase(scale_to_budget(share, budget, link.symbol_power), link.h)
        return p, log_eta[..., 0].exp()


def make_layers(inputs: int, width: int, outputs: int) -> nn.Module:
    hidden = [nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def draw_states(snr_db: Tensor, devices: int, generator: torch.Generator) -> Link:
    """Fading states at the SNRs [S], as a transport shows them to a policy: Rayleigh, budgets and
    symbol powers that differ by up to 10 dB.
    """
    trials = len(snr_db)

    def unequal() -> Tensor:
        return 10.0 ** (torch.rand(trials, devices, generator=generator) - 0.5)

    return Link(
        h=torch.randn(trials, 1, devices, dtype=torch.complex64, generator=generator),
        gain=torch.ones(trials, devices),
        budget=10.0 ** (snr_db[:, None] / 10.0) * unequal(),
        symbol_power=unequal()[:, None],
        noise_variance=torch.full((trials,), 0.5),
        transmit_mask=torch.ones(trials, devices, dtype=torch.bool),
        is_linear=True,
        hyper={},
    )


def train(steps: int, devices: int, seed: int, batch: int = 128) -> LearnedPolicy:
    """Adam, warmed up and annealed by a cosine, on new states at -2.5 to 22.5 dB in each step."""
    torch.manual_seed(seed)
    policy, generator = LearnedPolicy(), torch.Generator().manual_seed(seed + 1)
    optimiser = torch.optim.Adam(policy.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps, pct_start=0.05)
    for _ in range(steps):
        link = draw_states(25.0 * torch.rand(batch, generator=generator) - 2.5, devices, generator)
        loss = aggregation_mse(link.h, *policy(link), link.symbol_power).log().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
    return policy


@torch.no_grad()
def compute_errors(policy: LearnedPolicy, link: Link) -> dict[str, Tensor]:
    """Policy -> closed-form error [S] in each state."""
    rules = [CaoStatic(), Full(), ChannelInversion()]
    fixed = [rule.compute_coefficients(None, link)[1] for rule in rules]
    scalars = [policy(link), *((one.p, one.eta) for one in fixed)]
    names = ("learned", "cao_static", "full", "ci")
    found = (aggregation_mse(link.h, p, eta, link.symbol_power)[:, 0] for p, eta in scalars)
    return dict(zip(names, found, strict=True))


@torch.no_grad()
def draw(mean: dict[str, list[float]], policy: LearnedPolicy, link: Link, out: Path) -> None:
    """Error against SNR, and what the network found out: a threshold."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for (name, row), style in zip(mean.items(), ("ko", "-", "--", ":"), strict=True):
        left.semilogy(SNRS_DB, row, style, label=name)
    left.set(xlabel="SNR (dB)", ylabel="mean squared error of a symbol")
    p, eta = policy(link)
    bound = (link.budget[:, None] / link.symbol_power).sqrt()
    reach = bound * link.h.abs() / eta.sqrt()[..., None]
    right.loglog(reach.flatten(), (p.abs() / bound).flatten(), "k.", ms=1.5, label="learned")
    right.loglog([0.1, 1, 30], [1, 1, 1 / 30], "C1--", lw=1, label="optimal, min(1, 1/x)")
    right.set(xlabel=r"gain at full power, $\sqrt{q_k/\eta}$", ylabel=r"$|p_k|$ over its bound")
    right.set(xlim=(0.1, 30), ylim=(0.03, 1.3))
    for axes in (left, right):
        axes.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=3000, help="training steps of 128 states")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", type=int, default=10)
    figure = Path("results/learned_power.png")
    parser.add_argument("--out", type=Path, default=figure, help="where the figure goes")
    options = parser.parse_args()
    start = time.perf_counter()
    policy = train(options.steps, options.devices, options.seed)
    print(f"trained in {time.perf_counter() - start:.0f} s; {HELD_OUT} held-out states an SNR")
    held_out = torch.Generator().manual_seed(options.seed + 2)
    links = [draw_states(torch.full((HELD_OUT,), db), options.devices, held_out) for db in SNRS_DB]
    found = [compute_errors(policy, link) for link in links]
    mean = {name: [one[name].mean().item() for one in found] for name in found[0]}
    print("mean squared error (ratio to cao_static)")
    print("policy      " + "".join(f"{db:>16g} dB" for db in SNRS_DB))
    for name, row in mean.items():
        cells = (f"{a:.3e} ({a / b:7.4f})" for a, b in zip(row, mean["cao_static"], strict=True))
        print(f"{name:<12}" + "  ".join(cells))
    few = draw_states(torch.full((300,), 10.0), options.devices, held_out)
    draw(mean, policy, few, options.out)
    print(f"figure: {options.out}")


if __name__ == "__main__":
    command(main)
