"""What TDPFed's ACT loses on the kernels of its VGG8 (Table I, x2), by how it factors their mean.

Ten devices hold the factors that TDPFed starts from, each with noise of a hundredth of their
entries. Their mean tensor is compared with the mean of the factors (AFM), and with factors that
alternating least squares finds from AFM's, or from random ones. No data, no training; seconds.

    python -m studies.tdpfed.act_sweeps
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.factorised import cp
from studies.common.tables import command, print_head, print_row

KERNELS = {  # of Table I: modes, rank at x2
    "conv1": ((3, 3, 3, 32), 11),
    "conv2": ((3, 3, 32, 64), 90),
    "conv3": ((3, 3, 64, 128), 186),
    "conv4": ((3, 3, 128, 256), 378),
    "conv5": ((3, 3, 256, 256), 569),
    "ours": ((3, 3, 8, 16), 19),
}
DEVICES, DRIFT, SWEEPS = 10, 0.01, (1, 50)


def format_percent(tensor: Tensor, factors: list[Tensor]) -> str:
    """Write how far factors are from a tensor."""
    apart = (cp.kruskal(factors) - tensor).norm() / tensor.norm()
    return f"{100 * float(apart):.2g} %"


def main() -> None:
    torch.manual_seed(0)
    random = [f"{count} sweep{'s' * (count > 1)} from random" for count in SWEEPS]
    columns = ("a device's own", "AFM", "5 sweeps from AFM", *random)
    print_head("From the mean of ten kernels", "kernel", "rank", *columns)
    for name, (modes, rank) in KERNELS.items():
        deviation = cp.start_deviation(modes[0] * modes[1] * modes[2], rank, len(modes))
        shape = [(1, rank, size) for size in modes]
        common, start = (
            [deviation * torch.randn(*one, dtype=torch.float64) for one in shape] for _ in range(2)
        )
        each = [
            [f + DRIFT * deviation * torch.randn_like(f) for f in common] for _ in range(DEVICES)
        ]
        mean = torch.stack([cp.kruskal(one) for one in each]).mean(0)
        afm = [torch.stack(of_all).mean(0) for of_all in zip(*each, strict=True)]
        cells = [format_percent(mean, each[0]), format_percent(mean, afm)]
        cells.append(format_percent(mean, cp.run_als(mean, afm, 5)[0]))
        done = 0
        for sweeps in SWEEPS:
            start, _ = cp.run_als(mean, start, sweeps - done, change=0.0)
            done = sweeps
            cells.append(format_percent(mean, start))
        print_row(f"{name}, {'x'.join(map(str, modes))}", rank, *cells)


if __name__ == "__main__":
    command(main)
