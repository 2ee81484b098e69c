"""How much of a gradient a rank-4 start can follow: the share of its squared norm that lies in the
tangent space of the manifold there, layer by layer. What is left out is lost to Riemannian SGD,
which is why FedRLR's constants move so little at first.

    python -m studies.fedrlr.gradient_share          Fashion-MNIST; some seconds
"""

from __future__ import annotations

import torch

import otafl
from otafl.algorithms.low_rank_layers import get_point
from otafl.analysis.summary import format_mean_std
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.factorised.lowrank import LowRank, project, to_dense
from otafl.scenario import expand
from studies.common.tables import command

TRIALS = 5


@torch.inference_mode()
def compute_shares(pixels: str, rescale: bool) -> list[str]:
    """For each layer, over all devices of all trials, at batches of 100."""
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
        out.append(format_mean_std(share.numpy()) + " %")
    return out


def main() -> None:
    print("| pixels | start | 784 x 256 | 256 x 256 | 256 x 10 |\n|---|---|---|---|---|")
    for pixels, named in (("raw", "0 to 255"), ("unit", "0 to 1")):
        for rescale in (True, False):
            start = "at its norm before truncation" if rescale else "as truncated"
            print(f"| {named} | {start} | " + " | ".join(compute_shares(pixels, rescale)) + " |")


if __name__ == "__main__":
    command(main)
