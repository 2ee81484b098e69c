"""Compare a power policy of your own with built-in ones.

A policy is a function of the link. It returns the transmit scalars p and the receive scaling eta.
A scenario names it as `module:function`.
"""

import torch

import otafl


def keep_strong(link, share=0.5):
    """Weak devices at full power; the others arrive as strong as this quantile of them all."""
    bound = (link.budget[:, None] / link.symbol_power).sqrt()
    reach = (bound * link.h.abs()).masked_fill(~link.eligible_mask, torch.nan)
    root_eta = reach.nanquantile(share, -1, keepdim=True)
    p = torch.minimum(bound, root_eta / link.h.abs()) * torch.conj(torch.sgn(link.h))
    return p, root_eta[..., 0].square()


if __name__ == "__main__":
    scenario = {
        "name": "own_policy",
        "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
        "model": {"name": "mlp", "hidden": [32]},
        "algorithm": {"name": "fedavg", "learning_rate": 0.2},
        "channel": {"name": "rayleigh", "snr_db": -10},
        "training": {"rounds": 20, "local_steps": 5, "eval_every": 20},
        "trials": 3,
        "sweep": {
            "power": [
                "ci",
                "gbma",
                {"name": "own_policy:keep_strong", "share": 0.2},
                {"name": "own_policy:keep_strong", "share": 0.5},
            ]
        },
    }
    result = otafl.run(scenario).isel(round=-1)
    table = result[["test_accuracy", "aggregation_nmse"]].mean("trial")
    print(table.to_dataframe()[["test_accuracy", "aggregation_nmse"]].round(3))
