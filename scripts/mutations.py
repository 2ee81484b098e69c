"""Puts mistakes into the code, one at a time, and says which the fast tests notice.

    python scripts/mutations.py [--only TEXT] [--all]

The mistakes are those of `tests/mutations.yaml`. Each is put into a copy of the tree, in which run
first the tests of the file, then the law that the mistake names (`otafl validate --quick --only
LAW`), then the tests of its package, then those of laws, then the contract tests (of a command, the
golden ones), and with --all the rest of the fast ones, up to the first failure.
The exit code is 1 if one is not noticed: a change of the tests is to leave none.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.yaml"
CHANGE = re.compile(r"<\|(.*?) => (.*?)\|>", re.DOTALL)
"""In a line, what stands there and what takes its place."""


@dataclass(frozen=True)
class Mutation:
    """A mistake: in `file`, a path below otafl/, a `line` is another one: `a <|+ => -|> b`.

    A `law` is a text in the names of the laws of `otafl validate` that then fail.
    """

    what: str
    file: str
    line: str
    law: str | None = None

    def apply(self, text: str) -> str:
        """Return the text with the mistake; raise ValueError unless the line is there once."""
        old, new = (CHANGE.sub(rf"\{group}", self.line) for group in (1, 2))
        if (times := text.count(old)) != 1:
            raise ValueError(
                f"otafl/{self.file} has {times} times, not once: {old} (give the mutation of "
                f"{LIST.relative_to(ROOT)} the line as it is now)"
            )
        return text.replace(old, new)


def list_mutations() -> list[Mutation]:
    """Return the mutations of the list."""
    every = yaml.safe_load(LIST.read_text())
    return [Mutation(file=file, **one) for file, rows in every.items() for one in rows]


def iterate_checks(mutation: Mutation, everything: bool) -> Iterator[list[str]]:
    """Yield what to run for a mistake, nearest first: names of tests, or `--only` and a law."""
    package, *_ = Path(mutation.file).parts
    near = ROOT / "tests" / Path(mutation.file).parent
    tests = near.glob(f"test_{Path(mutation.file).stem}*.py")
    yield [str(path.relative_to(ROOT)) for path in tests]
    if mutation.law is not None:
        yield ["--only", mutation.law]
    yield [f"tests/{package}"]
    yield ["tests/laws"]
    yield ["tests/golden" if package == "cli" else "tests/contract"]
    if everything:
        yield ["tests"]


def find_first_failure(tree: Path, checks: list[str]) -> str | None:
    """Return the first test or law that fails in a tree, None where all pass.

    Raises RuntimeError if pytest cannot run the tests, or if no law has the name.
    """
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command, *checks],
            cwd=tree, env=environment, capture_output=True, text=True,
        )  # fmt: skip

    if checks[0] == "--only":
        done = run("otafl", "validate", "--quick", "--quiet")
        if done.returncode == 2:
            raise RuntimeError(f"otafl validate could not run: {done.stderr.strip()}")
        return f"law {checks[1]}" if done.returncode else None
    done = run("pytest", "-x", "-n", "0", "-p", "no:cacheprovider")
    if done.returncode in (0, 5):  # 5: no tests there
        return None
    if done.returncode == 4:  # no test ran: a file that git does not know, for instance
        raise RuntimeError(f"pytest could not run {' '.join(checks)}: {done.stderr.strip()}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"pytest, with exit code {done.returncode}"


def find_detecting_test(mutation: Mutation, tree: Path, everything: bool) -> str | None:
    """Return the test or law that notices a mistake in a tree, which is left as it was."""
    path = tree / "otafl" / mutation.file
    whole = path.read_text()
    path.write_text(mutation.apply(whole))
    try:
        every = (checks for checks in iterate_checks(mutation, everything) if checks)
        return next(filter(None, (find_first_failure(tree, checks) for checks in every)), None)
    finally:
        path.write_text(whole)


def main() -> int:
    """Run the mutations and print what notices them, and the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="mutations whose file or sentence holds TEXT")
    parser.add_argument("--all", action="store_true", help="end with all fast tests")
    options = parser.parse_args()
    outcome: list[bool] = []
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in files.stdout.splitlines():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, Path(folder) / name)
        for one in list_mutations():
            if options.only in f"{one.file} {one.what}":
                by = find_detecting_test(one, Path(folder), options.all)
                outcome.append(by is not None)
                print(f"{one.file}: {one.what}: {by or 'NOT NOTICED'}", flush=True)
    print(f"{sum(outcome)} of {len(outcome)} noticed")
    return int(not all(outcome))


if __name__ == "__main__":
    sys.exit(main())
