"""Share a sweep among the workers of a Dask cluster.

The cluster here is two processes of this machine. On a real one, give the address of its
scheduler. The same program goes on after an interruption.
"""

import tempfile
from pathlib import Path

from distributed import LocalCluster

import otafl

scenario = {
    "name": "shared",
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "training": {"rounds": 10, "local_steps": 5, "eval_every": 10},
    "trials": 2,
    "sweep": {"model.hidden": [[8], [16], [32]], "channel.snr_db": [-20, 0]},
}

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp()) / "shared"
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        result = otafl.sweep(scenario, folder, scheduler=cluster.scheduler_address)
    print(f"{len(list((folder / 'parts').glob('*.nc')))} files in {folder}")
    print(result.test_accuracy.isel(round=-1).mean("trial").to_pandas().round(3))
