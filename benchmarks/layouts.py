"""Products of a wide layer with a minibatch, by the layout of the weight.

    OMP_NUM_THREADS=1 python benchmarks/layouts.py > results/benchmarks_layouts.md

Prints a Markdown page.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable

import torch
from page import duration, header, normal, row, three
from timing import seconds
from torch import Tensor

import otafl

DEVICES, BATCH, INPUTS, CALLS, TURNS = 10, 20, 784, 20, 21
Form = Callable[[], Tensor]


def make_forms(outputs: int) -> tuple[dict[str, Form], dict[str, Form]]:
    """Return the forms of the scores x W and of the step W += x^T h, by their names."""
    x, w = normal(1, DEVICES, BATCH, INPUTS), normal(2, DEVICES, INPUTS, outputs)
    h, turned = 1e-3 * normal(3, DEVICES, BATCH, outputs), w.mT.contiguous()
    doubled = torch.cat([x, normal(4, *x.shape)], 1)
    scores: dict[str, Form] = {
        "x W": lambda: torch.bmm(x, w),
        "x W, W transposed in memory": lambda: torch.bmm(x, turned.mT),
        "(W^T x^T)^T, W transposed in memory": lambda: torch.bmm(turned, x.mT).mT,
        "x W, a product for each device": lambda: torch.stack(
            [a @ b for a, b in zip(x, w, strict=True)]
        ),
        "[x, x'] W, bits of half": lambda: torch.bmm(doubled, w)[:, :BATCH],
    }
    own, own_turned = w.clone(), turned.clone()
    steps: dict[str, Form] = {
        "W += x^T h": lambda: own.baddbmm_(x.mT, h),
        "W^T += h^T x, W transposed in memory": lambda: own_turned.baddbmm_(h.mT, x).mT,
    }
    return scores, steps


def compare(outputs: int) -> None:
    """Print the rows of a weight of this many outputs."""
    for forms in make_forms(outputs):
        expected = None
        equal = {}
        for name, form in forms.items():
            found = form().clone()
            expected = found if expected is None else expected
            equal[name] = torch.equal(found, expected)
        taken: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(TURNS):
            for name, form in forms.items():
                call = functools.partial(repeat, form)
                taken[name].append(seconds(call, time.process_time))
        for name, times in taken.items():
            time_s = statistics.median(times) / CALLS / DEVICES
            samples = 2 * BATCH if "half" in name else BATCH
            rate = 2e-9 * samples * INPUTS * outputs / time_s
            shape = f"{INPUTS} x {outputs}"
            row(shape, name, duration(time_s), three(rate), "yes" if equal[name] else "no")


def repeat(form: Form) -> None:
    """Call a form several times."""
    for _ in range(CALLS):
        form()


def main() -> None:
    """Print the page."""
    torch.set_num_threads(1)
    print("# Products of a wide layer with a minibatch\n")
    command = "python benchmarks/layouts.py > results/benchmarks_layouts.md"
    print(f"Made by `OMP_NUM_THREADS=1 {command}`.")
    print(f"{DEVICES} devices in one batch, {BATCH} samples each. Forms run in turn, A B C A B C;")
    print(f"times are medians of {TURNS}, of one thread's processor. Bits are compared with those")
    print("of the first form of a product. Compare times within the page.\n")
    print(f"torch {torch.__version__}, otafl {otafl.__version__}\n")
    header("weight", "form", "time of a device", "GFLOP/s", "same bits")
    with torch.inference_mode():
        for outputs in (100, 10):
            compare(outputs)
        a, b = normal(5, 1024, 1024), normal(6, 1024, 1024)
        times = [seconds(lambda: a @ b, time.process_time) for _ in range(TURNS)]
    time_s = statistics.median(times)
    row("1,024 x 1,024", "one large product", duration(time_s), three(2e-9 * 1024**3 / time_s), "")


if __name__ == "__main__":
    main()
