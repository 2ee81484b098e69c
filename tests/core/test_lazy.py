"""Large libraries are imported at their first use, and never by a scenario's validation."""

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import otafl
from otafl.core import lazy

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def list_imported(code: str, *names: str) -> set[str]:
    """Run code in another program, and return which of the modules it has imported."""
    end = f"import sys; print('*', *({set(names)!r} & sys.modules.keys()))"
    script = f"{textwrap.dedent(code)}\n{end}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.rpartition("*")[2].split())


def test_no_component_imports_torch() -> None:
    code = """
        import importlib
        from otafl.core.registry import TABLES
        for table in TABLES.values():
            for module in table.modules.values():
                importlib.import_module(module)
            if table.supports_custom:
                importlib.import_module(f"{table.package}.custom")
    """
    assert not list_imported(code, "torch", "scipy.stats", "sionna", "matplotlib")


def test_scenario_is_read_compared_and_printed_without_torch(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("training: {rounds: 0}\n")
    file = str(SCENARIOS / "quickstart.yaml")
    code = f"""
        from otafl.cli.commands import call
        for args in (["diff", {file!r}, {file!r}], ["check", {str(wrong)!r}]):
            try:
                call(args)
            except SystemExit as end:
                assert end.code == 2 * (args[0] == "check"), args
        from otafl.scenario import format_settings, list_notes
        from otafl.scenario.loading import load_points
        scenario, points = load_points({file!r}, [], None)
        format_settings(scenario, points, False)
        list_notes(points)
    """
    assert not list_imported(code, "torch", "scipy.stats", "matplotlib")


@pytest.mark.slow
def test_show_imports_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    tiny = ["training.rounds=1", "training.eval_every=1", "trials=1", "sweep={}"]
    file = tmp_path / "tiny.nc"
    otafl.run(otafl.load_scenario(SCENARIOS / "quickstart.yaml", tiny), file)
    code = f"""
        from otafl.cli.commands import call
        try:
            call(["show", {str(file)!r}])
        except SystemExit as end:
            assert not end.code
    """
    assert not list_imported(code, "torch", "scipy.stats", "matplotlib")


def test_name_becomes_the_library_at_its_first_use() -> None:
    names = {"torch": lazy._LazyModule("torch")}
    assert names["torch"] is not torch
    exec("def make(): return torch.zeros(2)", names)
    assert names["make"]().shape == (2,)
    assert names["torch"] is torch


def test_other_name_of_the_stand_in_stays_usable() -> None:
    other = lazy._LazyModule("torch.nn.functional")
    assert other.relu is torch.nn.functional.relu


def test_stand_ins_are_pickled_as_the_library() -> None:
    assert pickle.loads(pickle.dumps(lazy._LazyModule("torch"))) is torch
    assert pickle.loads(pickle.dumps(lazy.Tensor)) is lazy.Tensor


def test_tensors_are_instances_of_the_stand_in() -> None:
    assert isinstance(torch.zeros(1), lazy.Tensor)
    assert isinstance(torch.nn.Parameter(torch.zeros(1)), lazy.Tensor)
    assert not isinstance(1.0, lazy.Tensor)
