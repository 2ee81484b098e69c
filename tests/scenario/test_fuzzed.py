"""Malformed scenarios: `check` and `run` end with 0, or with 2 and a sentence, in no traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.malformed import draw_text

from otafl import cli
from otafl.data.loading import read_shape
from otafl.running import memory
from otafl.scenario import expand, load_scenario
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.slow(seconds=35)

EXAMPLES = int(os.environ.get("OTAFL_FUZZ", "100"))
"""Scenarios that are made; the same ones each time, and others for another number."""

PHASES = [Phase.generate, *([Phase.shrink] if "OTAFL_FUZZ" in os.environ else [])]
"""One that fails is made small where somebody looks for it."""

MOST_S = 60.0
"""Processor seconds after which a command hangs."""

SMALL_BYTES = 2**26
"""A trial that is run takes less."""

CAPPED = {"rounds": 2, "trials": 2, "count": 6, "participants": 4, "senders": 3}


def called(*args: str) -> tuple[int, str]:
    """The exit code of a command in this process, and what it says on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(args)
        except SystemExit as left:
            return int(left.code or 0), err.getvalue()
    raise AssertionError("a command leaves by SystemExit")


class Hangs(BaseException):
    """Nothing that a command takes for an error of its own."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Processor seconds of this program, however busy the machine is."""

    def late(*_: Any) -> None:
        raise Hangs(f"not done in {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def capped(value: Any, key: str = "") -> Any:
    """The scenario with small numbers of everything that is counted."""
    if isinstance(value, dict):
        return {name: capped(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [capped(one, key) for one in value[:3]]
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, CAPPED.get(key, 12))
    return value


def small_enough(path: Path) -> bool:
    """Whether all points of a scenario are small, few, and of data that are here."""
    points = expand(load_scenario(path))
    if len(points) > 4:
        return False
    for point in points:
        one = point.scenario
        if memory.estimate_trial(one, read_shape(one.data)).bytes > SMALL_BYTES:
            return False
    return True


def prepared(text: str) -> str:
    """The scenario made small, of the data set that is always here."""
    tree = capped(parse(text).data)
    if "data" in tree:
        section = tree["data"]
        tree["data"] = {**section, "name": "digits"} if isinstance(section, dict) else "digits"
    tree |= {"name": "fuzzed", "engine": {"threads": 1, "device": "cpu"}}
    tree["training"] = {"rounds": 2, **(tree.get("training") or {})}
    return json.dumps(tree)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        (home / "warm.yaml").write_text('{"name": "warm", "training": {"rounds": 1}}')
        assert called("run", "warm.yaml", "-q")[0] == 0
        yield home


SEEN: Counter[str] = Counter()


@settings(
    max_examples=EXAMPLES,
    phases=PHASES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(text=draw_text())
def test_a_sentence_or_a_result(home: Path, text: str) -> None:
    file = home / "s.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with within(MOST_S):
        code, said = called("check", "s.yaml")
    assert _is_sentence(code, said), said
    SEEN[f"check {code}"] += 1
    if code:
        return
    file.write_text(prepared(text))
    with within(MOST_S):
        runs = called("check", "s.yaml")[0] == 0 and small_enough(file)
    if runs:
        with within(MOST_S):
            code, said = called("run", "s.yaml", "--out", "s.nc", "-q", "--restart")
        assert _is_sentence(code, said), said
        SEEN[f"run {code}"] += 1


def _is_sentence(code: int, said: str) -> bool:
    """Whether a command ended as it may; a run that diverges or ends early may warn."""
    lines = said.splitlines()
    return code == 0 or (code == 2 and bool(lines) and lines[0].startswith("otafl: "))


def test_enough_was_tried() -> None:
    """Of what the test above made, about a third is sound, and most of that is run."""
    if SEEN:
        assert SEEN["check 2"] > EXAMPLES / 4
        assert SEEN["run 0"] > EXAMPLES / 10
