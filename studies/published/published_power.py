"""Two rules for power beside what is published of them: bounds on privacy that the channel's noise
keeps for free, and pre-scalers that trade bias for variance where path losses differ.

    otafl sweep studies/published/privacy_for_free.yaml
    otafl sweep studies/published/path_loss_spread.yaml
    otafl sweep studies/published/path_loss_spread_steps.yaml
    python -m studies.published.published_power [results] [--figures .]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import otafl
from otafl.analysis.summary import format_mean_std
from otafl.power.pre_scaler import minimise_cost, solve_zero_bias
from otafl.results.end_values import select_final, sum_over_devices
from studies.common.looks import draw_errorbars, make_frame, save
from studies.common.tables import (
    command,
    format_points,
    open_grids,
    open_result,
    parse_study_arguments,
    print_head,
    print_row,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#7F7F7F")
NO_BOUND = 1e9
SPREADS = (0, 20, 40)
NOISE = 0.5
"""N of a real, over the nearest device's budget, at the scenario's 0 dB."""


def compare_privacy(results: Path, figures: Path) -> None:
    best = otafl.select_tuned(open_result(results, "privacy_for_free"), over="learning_rate")
    accuracy = select_final(best, "test_accuracy")
    joules = sum_over_devices(select_final(best, "tx_energy_j").rename("tx_energy_j"))
    spent = 100 * joules.mean("trial") / joules.sel(epsilon=NO_BOUND).mean("trial")
    columns = ("points above no bound (step)", "energy, % of no bound")
    print_head("Privacy: what a bound costs", "SNR", "epsilon", *columns)
    figure, axes = make_frame(2, "test accuracy, mean and deviation")
    for j, snr in enumerate(best["snr_db"].values):
        free = {"snr_db": snr, "epsilon": NO_BOUND}
        for epsilon in best["epsilon"].values:
            at, bound = free | {"epsilon": epsilon}, epsilon < NO_BOUND
            own = accuracy.sel(at)
            whole = f"accuracy {format_mean_std(own.values)}"
            print_row(
                *(f"{snr:g} dB", f"{epsilon:g}" if bound else "none"),
                f"{format_points(own, accuracy.sel(free)) if bound else whole}"
                f" ({float(best['learning_rate'].sel(at)):g})",
                f"{float(spent.sel(at)):.3g}",
            )
        style = {"label": f"SNR {snr:g} dB", "color": COLOURS[j], "marker": "osD^"[j]}
        bounds, at = best["epsilon"].values[:-1], {"snr_db": snr, "epsilon": slice(0, 1e8)}
        draw_errorbars(axes[0], bounds, accuracy.sel(at).transpose("epsilon", "trial"), **style)
        axes[0].axhline(float(accuracy.sel(free).mean()), color=COLOURS[j], ls=":")
        axes[1].plot(bounds, spent.sel(at), **style)
    titles = ("accuracy (dotted: without a bound)", "energy")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xscale="log", xlabel="bound on the privacy loss, epsilon")
        axis.set_xticks(bounds, [f"{epsilon:g}" for epsilon in bounds])
        axis.minorticks_off()
    axes[1].set(yscale="log", ylabel="radiated energy, % of that without a bound")
    save(figure, axes[1], figures / "privacy_for_free.png")


def compute_plan(gamma: np.ndarray, strength: np.ndarray) -> tuple[float, float]:
    """Return bias and variance of the mean under a plan, times devices, over an update's power."""
    alpha = gamma * np.exp(-(gamma**2) / strength)
    share, total = alpha / alpha.sum(), alpha.sum()
    bias = len(share) * np.square(share - 1 / len(share)).sum()
    return float(bias), float((share * gamma / total - share**2).sum() + NOISE / total**2)


def compute_plans(spread_db: float) -> tuple[float, ...]:
    """Return bias and variance of the pre-scaler, then those of zero bias."""
    strength = np.repeat(10 ** (-np.linspace(0, spread_db, 5) / 10), 4)
    biased = compute_plan(minimise_cost(strength, NOISE, 1.0), strength)
    return *biased, *compute_plan(solve_zero_bias(strength), strength)


def compare_pre_scalers(results: Path, figures: Path) -> None:
    over = "server_learning_rate"
    tried = open_grids(results, ("path_loss_spread", "path_loss_spread_steps"), over)
    best = otafl.select_tuned(tried, over=over)
    accuracy, error = (
        select_final(best, name).transpose("power", "device_budget_db", "trial")
        for name in ("test_accuracy", "aggregation_nmse")
    )
    steps = best[over].transpose("power", "device_budget_db").values
    names = ("pre-scaler", "pre-scaler, zero bias", "tci", "cotaf", "ci", "full power")
    title = "Pre-scalers: accuracy (step), points above the pre-scaler, by spread"
    print_head(title, "policy", *(f"{db} dB" for db in SPREADS))
    figure, axes = make_frame(2, "of an update's power")
    for j, name in enumerate(names):
        cells = [
            f"{format_mean_std(accuracy[j, i].values)} ({steps[j, i]:g})"
            for i in range(len(SPREADS))
        ]
        if j:
            gains = (format_points(*pair) for pair in zip(accuracy[j], accuracy[0], strict=True))
            cells = [f"{cell}; {gain}" for cell, gain in zip(cells, gains, strict=True)]
        print_row(name, *cells)
        style = {"label": name, "color": COLOURS[j], "marker": "osD^vX"[j]}
        draw_errorbars(axes[1], np.array(SPREADS), accuracy[j], **style)
    columns = ("bias", "variance", "variance at zero bias", "error", "error at zero bias")
    print_head("Planned bias and variance, and errors measured", "spread", *columns)
    for i, db in enumerate(SPREADS):
        bias, variance, _, unbiased = compute_plans(db)
        row = (f"{value:.2f}" for value in (bias, variance, unbiased))
        print_row(f"{db} dB", *row, *(format_mean_std(error[j, i].values) for j in (0, 1)))
    wide = np.linspace(0, 40, 41)
    lines = np.array([compute_plans(db) for db in wide])
    for j, label, ls in ((0, "bias", "--"), (1, "variance", "-"), (3, "variance, zero bias", "-")):
        axes[0].plot(wide, lines[:, j], ls, color=COLOURS[j == 3], label=label)
    axes[0].set(yscale="log", ylim=(1e-3, None), title="plan")
    axes[0].legend()
    axes[1].set(title="test accuracy, mean ± deviation", xticks=SPREADS)
    for axis in axes:
        axis.set_xlabel("spread of received powers (dB)")
    save(figure, axes[1], figures / "pre_scalers.png")


def main() -> None:
    args = parse_study_arguments(__doc__)
    for part in (compare_privacy, compare_pre_scalers):
        part(args.results, args.figures)


if __name__ == "__main__":
    command(main)
