"""FedRLR's on-device inference (the paper's Fig. 10): size and latency of trained low-rank models
beside the dense one, in PyTorch, onnxruntime and LiteRT.

    otafl sweep studies/on_device/on_device.yaml
    pip install 'otafl[onnx,litert]'
    python -m studies.on_device.analyse              measures, and writes results/on_device.csv
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

import otafl
from otafl.exporting import deployment, formats
from otafl.exporting.formats import ModelSource, Run
from otafl.models.modules import count_macs, count_numbers
from studies.common.tables import command, make_parser
from studies.on_device.latencies import AGAIN, NAME, Latency, print_tables, write_rows

REPEATS, CALLS = 9, 10


def make_runs(
    chosen: deployment.SelectedModel, name: str, folder: Path
) -> dict[str, tuple[Run, int | None]]:
    """Runtime -> what runs the model there, and its file's bytes."""
    module = chosen.build_module()
    out: dict[str, tuple[Run, int | None]] = {"PyTorch": (formats.make_run_fn(module), None)}
    for target in ("onnx", "litert"):
        runtime, suffix, write = deployment.FORMATS[target]
        path = folder / f"{name}{suffix}"
        run = write(ModelSource(module, chosen.input_shape), path)
        assert run is not None
        out[runtime] = run, path.stat().st_size
    return out


def measure_width(result: Path, hidden: str, algorithms: list[str]) -> Iterator[Latency]:
    """Yield the latencies of the models with these hidden layers, in each runtime."""
    runs, facts, x = {}, {}, np.zeros(0, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in algorithms:
            low_rank = algorithm.startswith("fedrlr")
            name = f"R = {algorithm.split('rank=')[1].split(',')[0]}" if low_rank else "dense"
            sel = {"algorithm": algorithm, "hidden": hidden}
            which = ("local", 0) if low_rank else ("global", None)
            chosen = deployment.open_models(result, sel, 0, *which)
            runs[name] = make_runs(chosen, name, Path(folder))
            x, y = deployment.load_samples(chosen)
            scores = [formats.score_samples(run, x, y) for run, _ in runs[name].values()]
            for one in scores[1:]:
                if fault := formats.find_difference(scores[0], one):
                    raise otafl.UserError(f"{name}: {fault}")
            module = chosen.build_module()
            macs = count_macs(module, torch.from_numpy(x[:1]))
            facts[name] = count_numbers(module), macs, scores[0].accuracy
        runs[AGAIN], facts[AGAIN] = runs["dense"], facts["dense"]
        for runtime in runs["dense"]:
            each = {name: of[runtime][0] for name, of in runs.items()}
            times = [measure_latencies(each, x[:1]) for _ in range(REPEATS)]
            for name in each:
                some = np.array([1e6 * one[name] for one in times])
                ratio = np.array([one["dense"] / one[name] for one in times])
                size, spans = runs[name][runtime][1], (*span(some), *span(ratio))
                yield Latency(hidden.strip("[]"), runtime, name, *facts[name], size, *spans)


def measure_latencies(runs: Mapping[str, Run], x: np.ndarray) -> dict[str, float]:
    """Time one sample x [1, *input_shape] on one thread: seconds by model, the mean of two series.

    The models take turns, so that other load of the machine affects all of them.
    """
    timers = {name: Timer("run(x)", globals={"run": run, "x": x}) for name, run in runs.items()}
    series = [{name: one.timeit(CALLS).mean for name, one in timers.items()} for _ in range(2)]
    return {name: float(np.mean([one[name] for one in series])) for name in runs}


def span(values: np.ndarray) -> tuple[float, float, float]:
    """Compute median, least and largest value."""
    return float(np.median(values)), float(values.min()), float(values.max())


def main() -> None:
    parser = make_parser(__doc__, "results/on_device")
    parser.add_argument("--out", type=Path, default=Path("results") / NAME, help="file to write")
    args = parser.parse_args()
    result = otafl.open_results(args.result)
    algorithms = [str(one) for one in result["algorithm"].values]
    hidden = [str(one) for one in result["hidden"].values]
    rows = [row for of in hidden for row in measure_width(args.result, of, algorithms)]
    write_rows(rows, args.out)
    print_tables(rows)


if __name__ == "__main__":
    command(main)
