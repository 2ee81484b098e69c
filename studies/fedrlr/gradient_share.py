"""How much of a gradient a rank-4 start can follow: the share of its squared norm that lies in the
tangent space of the manifold there, layer by layer. What is left out is lost to Riemannian SGD,
which is why FedRLR's constants move so little at first.

    python -m studies.fedrlr.gradient_share          some seconds; writes results/gradient_share.csv
    python -m studies.fedrlr.gradient_share studies  prints what is committed
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import otafl
from otafl.algorithms.low_rank.low_rank_layers import get_point
from otafl.analysis.summary import format_mean_std
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.factorised.lowrank import LowRank, project, to_dense
from otafl.scenario import expand
from studies.common.tables import (
    command,
    find_file,
    print_head,
    print_row,
    read_lines,
    write_lines,
)

TRIALS = 5
NAME = "gradient_share.csv"
COLUMNS = ("pixels", "start", "layer", "share_percent")
PIXELS = {"raw": "0 to 255", "unit": "0 to 1"}
STARTS = {True: "at its norm before truncation", False: "as truncated"}
LAYERS = ("784 x 256", "256 x 256", "256 x 10")


@torch.inference_mode()
def compute_shares(pixels: str, rescale: bool) -> list[np.ndarray]:
    """Compute the percentages of each layer, of all devices of all trials, at batches of 100."""
    scenario = {
        "name": "gradient_share",
        "data": {"name": "fashion_mnist", "pixel_scale": pixels, "test": "train_tail"},
        "model": {"name": "mlp", "hidden": [256, 256]},
        "algorithm": {"name": "fedrlr", "rank": 4, "init_rescale": rescale},
        "training": {"rounds": 1, "batch_size": 100},
        "engine": {"dtype": "float64"},
        "trials": TRIALS,
    }
    points = expand(otafl.load_scenario(scenario))
    engine = Engine(assemble(points, list(range(TRIALS))))
    cohort, model = engine.select_cohort(None, 0), engine.parts.model
    starts = [get_point(engine.server, i) for i in range(len(model.layers))]
    starts = [LowRank(*(part[cohort.trial] for part in start)) for start in starts]
    params = {
        layer.weight: to_dense(start) for layer, start in zip(model.layers, starts, strict=True)
    }
    params |= {
        layer.bias: engine.server[f"b{i}"][cohort.trial] for i, layer in enumerate(model.layers)
    }
    batch = engine.parts.samples.training_data.select_cohort(0, cohort).draw_batch(0)
    _, gradients = model.compute_gradients(params, batch)
    out = []
    for layer, start in zip(model.layers, starts, strict=True):
        g = gradients[layer.weight]
        tangent = project(start, g @ start.v, g.mT @ start.u)
        inside = sum(part.square().sum((1, 2)) for part in tangent)
        share = 100.0 * inside / g.square().sum((1, 2))
        out.append(share.numpy())
    return out


def compute_lines() -> Iterator[tuple[str, str, str, str]]:
    """Yield pixels, start, layer and percentage of each device of each trial."""
    for pixels, named in PIXELS.items():
        for rescale, start in STARTS.items():
            for layer, shares in zip(LAYERS, compute_shares(pixels, rescale), strict=True):
                for share in shares:
                    yield named, start, layer, f"{share:.5g}"


def print_shares(lines: list[dict[str, str]]) -> None:
    """Print mean and deviation by pixels, start and layer."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in lines:
        layers = found.setdefault((line["pixels"], line["start"]), {})
        layers.setdefault(line["layer"], []).append(float(line["share_percent"]))
    print_head("Share of the gradient in the tangent space", "pixels", "start", *LAYERS)
    for (pixels, start), layers in found.items():
        print_row(pixels, start, *(f"{format_mean_std(np.array(layers[n]))} %" for n in LAYERS))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("results", nargs="?", type=Path, help="folder of computed shares, to print")
    parser.add_argument("--out", type=Path, default=Path("results") / NAME, help="file to write")
    args = parser.parse_args()
    if args.results is None:
        write_lines(args.out, COLUMNS, compute_lines())
    print_shares(read_lines(args.out if args.results is None else find_file(args.results, NAME)))


if __name__ == "__main__":
    command(main)
