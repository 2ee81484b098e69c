"""What is built from the checkout: the wheel, the sdist, what the Dockerfile installs."""

from __future__ import annotations

import email
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
from support.scenarios import SCENARIO_FILES

import otafl
from otafl.cli.new import list_shipped

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "scripts" / "Dockerfile").read_text()
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
def test_the_sdist_holds_what_its_tests_and_docs_read(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("otafl", "tests", "docs/pictures", "scripts", "scenarios", "studies"):
        assert files(folder) <= held, folder
    single = "README.md CHANGELOG.md .github/CONTRIBUTING.md CITATION.cff Makefile"
    single += " .github/SECURITY.md constraints.txt .dockerignore .pre-commit-config.yaml"
    single += " scripts/constraints_flower.txt docs/paper/paper.md docs/paper/paper.bib"
    assert set(single.split()) <= held


@pytest.mark.slow
def test_twine_finds_nothing_wrong(built: Path) -> None:
    program(
        sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir()), folder=built
    )


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


def in_context(path: str) -> bool:
    """Whether Docker's build sees a file, by the lines of .dockerignore, of which the last that
    matches counts. Only the forms of line that ours has are read."""
    seen = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        parents = [str(parent) for parent in (Path(path), *Path(path).parents)][:-1]
        names = [Path(one).name for one in parents] if pattern.startswith("**/") else parents
        if any(fnmatch(name, pattern.removeprefix("**/")) for name in names):
            seen = line.startswith("!")
    return seen


def test_the_dockerfile_installs_as_the_readme_does() -> None:
    (ran,) = re.findall(r"^RUN (.*)$", DOCKERFILE, re.M)
    enter, pip = ran.split(" && ")
    (copied,) = re.findall(r"^COPY \. (\S+)$", DOCKERFILE, re.M)
    assert enter == f"cd {copied}"
    readme = (ROOT / "README.md").read_text()
    (first, _) = re.findall(r"^python3 -m venv .*$", readme, re.M)
    _, install, _ = first.split(" && ")
    assert pip.replace(" --no-cache-dir", "") == install.removeprefix(".venv/bin/")
    (base,) = re.findall(r"^FROM python:(\S+)-slim$", DOCKERFILE, re.M)
    assert f"Programming Language :: Python :: {base}" in PROJECT["classifiers"]


def test_what_is_said_of_docker_names_what_there_is() -> None:
    """The commands of the page are those of the file, and enter otafl with a scenario there is."""
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', DOCKERFILE, re.M)
    assert entry in PROJECT["scripts"]
    page = (ROOT / "docs" / "install.md").read_text()
    for line in re.findall(r"^#   (docker .*)$", DOCKERFILE, re.M):
        assert line in page.splitlines()
    (workdir,) = re.findall(r"^WORKDIR (\S+)$", DOCKERFILE, re.M)
    runs = [shlex.split(line) for line in page.splitlines() if line.startswith("docker run")]
    assert len(runs) == 2
    for words in runs:
        assert words[words.index("-v") + 1] == f"$PWD:{workdir}"
        command, name = words[words.index("otafl") + 1 :]
        assert (ROOT / name).exists() if command == "run" else name in list_shipped()


def test_the_commands_of_uv_are_those_of_the_readme() -> None:
    readme = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.M)
    page = (ROOT / "docs" / "install.md").read_text()
    uv = re.findall(r"^uv venv && .*$", page, re.M)
    as_pip = [
        line.replace(
            "uv venv && uv pip install", "python3 -m venv .venv && .venv/bin/pip install -q"
        ).replace("uv run --no-sync ", ".venv/bin/")
        for line in uv
    ]
    assert as_pip == readme


@pytest.mark.slow
def test_the_image_can_be_installed_from_what_docker_sees(tmp_path: Path) -> None:
    """The RUN line, without the packages that the environment has already."""
    pytest.importorskip("hatchling")
    context, target = tmp_path / "otafl", tmp_path / "target"
    top = [path.name for path in ROOT.iterdir() if path.is_file()]
    for name in [
        *top,
        *files("otafl"),
        *files("scenarios"),
        *files("studies"),
        "tests/conftest.py",
    ]:
        if in_context(name):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, context / name)
    assert not (context / "tests").exists()
    assert not list((context / "studies").rglob("*.nc"))
    assert not (context / "CHANGELOG.md").exists()
    (ran,) = re.findall(r"^RUN (.*)$", DOCKERFILE, re.M)
    _, pip = ran.split(" && ")
    here = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    program(sys.executable, "-m", *shlex.split(pip), *here, folder=context)
    path = {"PYTHONPATH": str(target)}
    said = program(sys.executable, "-m", "otafl.cli", "new", "fedrlr_plus", folder=tmp_path, **path)
    assert said.startswith("wrote fedrlr_plus.yaml")
    assert (target / "bin" / "otafl").exists()
