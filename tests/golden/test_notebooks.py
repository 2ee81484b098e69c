"""The notebooks of docs/notebooks run from top to bottom, each in a program of its own, and show
what their texts say.

The first one for readers runs in a kernel of Jupyter. The others run in the shell of IPython that a
kernel has, in programs whose imports are done.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.programs import run

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.md") if path.stem != "index")

SHOWN = {
    "first_steps": """
ends = final.mean("trial")
assert (ends.sel(power="ci").diff("snr_db") > -0.02).all(), ends
assert ends.sel(power="gbma", snr_db=-30) > 0.7 > 0.4 > ends.sel(power="ci", snr_db=-30), ends
assert abs(difference.sel(snr_db=[-10, 0])).mean() < 0.03
assert len(final.trial) == 3
""",
    "power_control_from_scratch": """
assert largest < 0.15, largest
assert np.isclose(np.median(compute_nmse(*inversion(amplitude, 1.0), 1.0)), 1 / np.log(2), rtol=0.2)
assert np.isclose(theory["gbma"][-1], 4 / np.pi - 1, rtol=0.15), theory
for name in ("gbma", "ci"):
    assert (np.array(simulated["cao_static"]) < simulated[name]).all(), simulated
learns, error = final.test_accuracy.sel(snr_db=-20), final.aggregation_nmse.sel(snr_db=-20)
truncated = "tci(constraint=peak)"
assert learns.sel(power=truncated) > learns.sel(power="cao_static") + 0.15, learns
assert error.sel(power=truncated) > 20 * error.sel(power="cao_static"), error
""",
    "personal_models_over_the_air": """
few, many = (by_samples.sel(train_samples=n).mean("trial") for n in (100, 400))
assert few.sel(algorithm="ditto") > few.sel(algorithm="local_only") + 0.03, few
assert many.sel(algorithm="local_only") > many.max() - 0.01, many
assert (many.drop_sel(algorithm="fedavg") > many.sel(algorithm="fedavg")).all(), many
noisy = by_snr.sel(snr_db=-40).mean("trial")
assert noisy.idxmax() == "local_only" and noisy.argsort()[-2] == 2, noisy
sent = end.uplink_symbols.values
assert sent[0] == sent[1] > sent[2] > sent[3] == 0, sent
""",
    "adapters_over_fading": """
assert np.allclose(both, law, rtol=0.5), both / law
assert abs(both[-1] - (devices - 1) / devices) < 0.1 and fixed_a.max() < 1e-20, both
for mode in squared:
    assert np.allclose(squared[mode], expected[mode], rtol=0.25), mode
assert ratio[0] > 100 * ratio[-1] > 2000, ratio
assert diverged.sel(learning_rate=0.3, mode="both", snr_db=-30) == 3, diverged
assert diverged.sum() == 3, diverged
good = ends.sel(learning_rate=0.3, snr_db=[-20, 0])
assert (abs(good.sel(mode="both") - good.sel(mode="tangent")) < 0.06).all(), ends
assert (good.sel(mode="square") < good.sel(mode="tangent") - 0.15).all(), ends
weak = ends.sel(snr_db=-30)
assert weak.sel(learning_rate=0.1).idxmax() == "both", ends
assert sent["both"] == sent["tangent"] == 40 * (384 + 330) > 2 * sent["square"] > 0, sent
""",
    "own_power_policy": """
of_shares, least = error[2:], error.sel(power="cao_static")
assert of_shares.argmin("power").values.tolist()[::3] == [3, 0], error
assert (of_shares.min("power") < 2 * least).all(), error
assert error.sel(power="ci", snr_db=-20) > 100 * least.sel(snr_db=-20), error
assert sum(report.c < 0.99) == 4
assert report.nmse < otafl.over_the_air(updates, power="ci", **link)[1].nmse / 2.5
import pytest
with pytest.raises(otafl.UserError, match="times the budget"):
    otafl.over_the_air(updates, power=too_loud, **link)
""",
    "policy_by_snr": """
nmse = final.aggregation_nmse
assert (nmse.sel(power="cao_static") <= 1.001 * nmse.min("power")).all(), nmse
assert (learns.sel(snr_db=[-30, -20]) != "cao_static").all(), learns
gained = difference.mean("trial")
assert (gained.sel(power="gbma", snr_db=[-30, -20]) > 0.15).all(), gained
assert (abs(gained.sel(snr_db=[0, 10]).drop_sel(power="full")) < 0.03).all(), gained
""",
    "fedrlr_plus_cell": """
assert 45 < gain_db.max() - gain_db.min() < 65
ends = end.test_accuracy
assert (ends.drop_sel(power="full") > ends.sel(power="full") + 0.3).all(), ends
assert (abs(ends.sel(power="ci") - ends.sel(power="cao_static")) < 0.03).all(), ends
assert error.sel(power="ci") > 3 * error.sel(power="cao_static"), error
assert 5 < joules.sel(power="full") / joules.sel(power="ci") < 7, joules
sent = mean.uplink_symbols.where(mean.test_accuracy >= 0.7).min("round").values
assert sent[0] < sent[1] / 2, sent
""",
}
"""Of each notebook, what it must have found for its texts to be true."""


IN_KERNEL = "first_steps"

SHELL = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        "Do nothing: the figures are inline."

shell = Shell.instance()
shown = []
for cell in json.loads(Path(sys.argv[1]).read_text()):
    with capture_output() as captured:
        done = shell.run_cell(cell)
    done.raise_error()
    shown += [list(one.data) for one in captured.outputs]
    shown.append(list(shell.display_formatter.format(done.result)[0]))
print(json.dumps(shown))
"""
"""Run the cells of a file, and print the types of each output."""


def run_in_kernel(notebook: Any, folder: Path) -> list[list[str]]:
    """Run a notebook as Jupyter does; return the types of each output."""
    nbclient = pytest.importorskip("nbclient")
    place = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    return [list(one.get("data", {})) for cell in notebook.cells for one in cell.get("outputs", [])]


def run_in_shell(notebook: Any, folder: Path, file: Path) -> list[list[str]]:
    """Run the cells of a notebook, by way of a file; return the types of each output."""
    pytest.importorskip("matplotlib_inline")
    file.write_text(json.dumps([one.source for one in notebook.cells if one.cell_type == "code"]))
    done = run("-c", SHELL, file, cwd=folder)
    assert done.returncode == 0, done.stderr
    shown: list[list[str]] = json.loads(done.stdout)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = pytest.importorskip("myst_nb.core.read")
    nbformat = pytest.importorskip("nbformat")
    notebook = reading.read_myst_markdown_notebook(path.read_text(), path=path)
    notebook.cells.append(nbformat.v4.new_code_cell(SHOWN[path.stem]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "empty"
    folder.mkdir()
    if path.stem == IN_KERNEL:
        shown = run_in_kernel(notebook, folder)
    else:
        shown = run_in_shell(notebook, folder, tmp_path / "cells.json")
    figures = [types for types in shown if "image/svg+xml" in types]
    drawn = re.findall(r"^(?:draw|plot_\w+)\(|^figure, axes = ", path.read_text(), re.MULTILINE)
    assert len(figures) == len(drawn) > 0
    assert not list(folder.iterdir())


WORKERS = """
import otafl
scenario = {
    "name": "cells",
    "data": {"name": "digits", "train_samples": 200},
    "devices": {"count": 3},
    "training": {"rounds": 2, "eval_samples": 40},
    "engine": {"device": "cpu", "threads": 1},
    "sweep": {"training.batch_size": [5, 10]},
}
alone = otafl.sweep(scenario, "alone")
both = otafl.sweep(scenario, "both", workers=2)
assert both.test_accuracy.equals(alone.test_accuracy)
"""


@pytest.mark.slow
def test_workers_compute_what_a_cell_asks_for(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WORKERS)])
    run_in_kernel(notebook, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "both"]
