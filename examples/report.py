"""Write a page for co-authors: settings, tables, paired tests and figures in one HTML file.

`otafl report RESULT` does the same on the command line.
"""

import tempfile
from pathlib import Path

import otafl
from otafl import report

folder = Path(tempfile.mkdtemp())
scenario = {
    "name": "report",
    "data": {"name": "digits", "partition": {"name": "label_skew", "classes_per_device": 4}},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "training": {"rounds": 20, "local_steps": 5, "eval_every": 5},
    "trials": 3,
    "sweep": {"channel.snr_db": [-20, -10, 0], "power.name": ["gbma", "ci"]},
}

result = otafl.run(scenario, folder / "report.nc")
page = folder / "report.html"
text = report.render_page(result, folder / "report.nc", {"snr_db": ["-20", "0"]})
page.write_text(text, encoding="utf-8")
print(f"{page.stat().st_size / 1e6:.1f} MB in {page}")
