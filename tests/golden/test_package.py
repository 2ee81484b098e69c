"""What is built from the checkout: the wheel, the sdist, what the Dockerfile installs."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from support.scenarios import SCENARIO_FILES

import otafl
from otafl.cli.new import list_shipped

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def program(*command: str, folder: Path, **environment: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def files(folder: str) -> set[str]:
    """Names of the checkout's files in a folder of its own, without what Python compiles."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist of the checkout, and of the wheel that is built from it."""
    for needed in ("build", "hatchling", "twine"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("dist")
    build = ("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    program(sys.executable, *build, folder=folder)
    return folder


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel holds."""
    folder = tmp_path_factory.mktemp("unpacked")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_the_scenarios(unpacked: Path) -> None:
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    there = {name for name in held if not name.startswith("otafl-")}
    shipped = {f"otafl/{file.relative_to(ROOT)}" for file in SCENARIO_FILES}
    assert there == files("otafl") | shipped
    (about,) = unpacked.glob("*.dist-info")
    said = email.message_from_string((about / "METADATA").read_text())
    assert (said["Name"], said["Version"]) == ("otafl", otafl.__version__)
    assert said.get_all("Classifier") == PROJECT["classifiers"]
    assert "otafl = otafl.cli:main" in (about / "entry_points.txt").read_text()
    assert (about / "licenses" / "LICENSE").exists()


@pytest.mark.slow
def test_the_sdist_holds_all_but_the_results_of_studies(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("otafl", "tests", "docs/pictures", "scripts", "scenarios"):
        assert files(folder) <= held, folder
    of_studies = {name for name in files("studies") if Path(name).parent.name != "data"}
    assert {name for name in of_studies if not name.endswith(".png")} <= held
    assert sdist.stat().st_size < 5e6
    single = "README.md CHANGELOG.md .github/CONTRIBUTING.md CITATION.cff Makefile"
    single += " .github/SECURITY.md .ci/run constraints.txt .dockerignore .pre-commit-config.yaml"
    single += " scripts/constraints_flower.txt docs/paper/paper.md docs/paper/paper.bib"
    assert set(single.split()) <= held


@pytest.mark.slow
def test_the_quickstart_runs_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    """In a folder that knows nothing of a checkout."""
    command, path = (sys.executable, "-m", "otafl.cli"), {"PYTHONPATH": str(unpacked)}
    where = "import otafl; print(otafl.__file__)"
    assert program(sys.executable, "-c", where, folder=tmp_path, **path).startswith(str(unpacked))
    listed = program(*command, "new", "--list", folder=tmp_path, **path, COLUMNS="500")
    first = [line.split()[0] for line in listed.splitlines() if line.strip()]
    assert [word for word in first if word in list_shipped()] == list(list_shipped())
    program(*command, "new", "quickstart.yaml", folder=tmp_path, **path)
    short = [f"--set={one}" for one in ("training.rounds=20", "trials=1", "channel.snr_db=0")]
    short.append("--set=sweep={}")
    said = program(*command, "run", "quickstart.yaml", *short, folder=tmp_path, **path)
    assert "result: results/quickstart.nc" in said
    result = otafl.open_results(tmp_path / "results" / "quickstart.nc")
    assert float(result.test_accuracy.isel(round=-1).mean()) > 0.6  # of ten classes
