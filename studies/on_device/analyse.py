"""FedRLR's on-device inference (the paper's Fig. 10): size and latency of trained low-rank models
beside the dense one, in PyTorch, onnxruntime and LiteRT.

    otafl sweep studies/on_device/on_device.yaml
    pip install 'otafl[onnx,tensorflow]'
    python -m studies.on_device.analyse
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

import otafl
from otafl.exporting import deployment, litert, measure, onnx
from otafl.exporting.measure import Run
from otafl.models.modules import count_macs, count_numbers
from studies.common.tables import command, make_parser, print_head, print_row

REPEATS = 9


def make_runs(
    chosen: deployment.SelectedModel, name: str, folder: Path
) -> dict[str, tuple[Run, str]]:
    """Runtime -> what runs the model there, and its file's bytes."""
    module = chosen.build_module()
    out: dict[str, tuple[Run, str]] = {"PyTorch": (measure.make_run_fn(module), "")}
    for tool in (onnx, litert):
        path = folder / f"{name}{tool.SUFFIX}"
        tool.write(module, chosen.input_shape, path)
        out[tool.NAME] = tool.make_runner(path), f"{path.stat().st_size:,}"
    return out


def print_width(result: Path, hidden: str, algorithms: list[str]) -> None:
    runs, x = {}, np.zeros(0, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        print_head(f"Hidden layers {hidden}", "model", "parameters", "multiplications", "accuracy")
        for algorithm in algorithms:
            low_rank = algorithm.startswith("fedrlr")
            name = f"R = {algorithm.split('rank=')[1].split(',')[0]}" if low_rank else "dense"
            sel = {"algorithm": algorithm, "hidden": hidden}
            which = ("local", 0) if low_rank else ("global", None)
            chosen = deployment.open_models(result, sel, 0, *which)
            runs[name] = make_runs(chosen, name, Path(folder))
            x, y = deployment.load_samples(chosen)
            scores = [measure.score_samples(run, x, y) for run, _ in runs[name].values()]
            for one in scores[1:]:
                if fault := measure.find_fault(scores[0], one, quantised=False):
                    raise otafl.UserError(f"{name}: {fault}")
            module, same = chosen.build_module(), f"{scores[0].accuracy:.4f} in all three"
            print_row(
                name,
                f"{count_numbers(module):,}",
                f"{count_macs(module, torch.from_numpy(x[:1])):,}",
                same,
            )
        runs["dense, again"] = runs["dense"]
        for runtime in runs["dense"]:
            print_head(
                runtime, "model", "file, bytes", "median, us (range)", "dense / model (range)"
            )
            each = {name: of[runtime][0] for name, of in runs.items()}
            times = [measure.measure_latencies(each, x[:1], rounds=2) for _ in range(REPEATS)]
            for name in each:
                some = np.array([1e6 * one[name].median_s for one in times])
                ratio = np.array([one["dense"].median_s / one[name].median_s for one in times])
                print_row(name, runs[name][runtime][1], format_spread(some), format_spread(ratio))


def format_spread(values: np.ndarray) -> str:
    return f"{np.median(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def main() -> None:
    args = make_parser(__doc__, "results/on_device").parse_args()
    result = otafl.open_results(args.result)
    for hidden in result["hidden"].values:
        print_width(args.result, str(hidden), [str(one) for one in result["algorithm"].values])


if __name__ == "__main__":
    command(main)
