"""The records of decisions have one form, and the overview of the design is that of the code."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import pytest

from otafl.downlink.base import Downlink
from otafl.engine.assembly import Parts
from otafl.engine.engine import Engine
from otafl.engine.update import Update
from otafl.uplink.base import deliver

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text()
RECORDS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
SECTIONS = ["Context", "Choice", "Rejected", "Consequences"]
HEAD = re.compile(
    r"# (\d{4})\. (.+)\n\n- Date: (\d{4}-\d\d-\d\d)\n- Status: ((?:.|\n)+?)\n\n(?=## )"
)
STATUS = re.compile(
    r"accepted(, amended \d{4}-\d\d-\d\d: .+)?|superseded by \[(\d{4})\]\((\2-[\w-]+\.md)\)"
)
MOST_WORDS = 25


def read_head(text: str) -> tuple[str, str, date, str]:
    """Return a record's number, title, date and status."""
    head = HEAD.match(text)
    assert head, text[:200]
    number, title, day, status = head.groups()
    return number, title, date.fromisoformat(day), " ".join(status.split())


def find_problem(text: str) -> str:
    """Return what is wrong with the form of a record, or nothing."""
    _, _, _, status = read_head(text)
    if not STATUS.fullmatch(status):
        return f"status {status}"
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    if parts[::2] != SECTIONS:
        return f"sections {parts[::2]}"
    for section, body in zip(SECTIONS, parts[1::2], strict=True):
        if not body.strip():
            return f"nothing in {section}"
        for sentence in split_sentences(body):
            if len(sentence.split()) > MOST_WORDS:
                return f"{len(sentence.split())} words: {sentence}"
    return ""


def split_sentences(text: str) -> list[str]:
    """Split prose after full stops and colons; code is one word, the address of a link none."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "Code", text))
    return re.split(r"(?<=[.:?])\s+(?=[A-Z(\[])|\n- |\n\n", text.strip())


def test_records_are_numbered_in_the_order_of_their_dates() -> None:
    heads = [read_head(file.read_text()) for file in RECORDS]
    assert [number for number, *_ in heads] == [f"{i:04d}" for i in range(1, len(heads) + 1)]
    assert [file.name[:4] for file in RECORDS] == [number for number, *_ in heads]
    days = [day for _, _, day, _ in heads]
    assert days == sorted(days)


def test_records_have_one_form() -> None:
    problems = {file.name: find_problem(file.read_text()) for file in RECORDS}
    assert not {name: problem for name, problem in problems.items() if problem}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Status: accepted", "Status: agreed"),
        ("## Rejected", "## Refused"),
        ("\n## Consequences\n", "\n## Consequences\n\nIt " + "is so " * 20 + "long.\n"),
    ],
)
def test_a_record_of_another_form_is_found(old: str, new: str) -> None:
    text = RECORDS[0].read_text()
    assert not find_problem(text)
    assert find_problem(text.replace(old, new))


def test_the_tables_of_the_design_page_are_the_records() -> None:
    rows = re.findall(r"^\| \[(\d{4})\]\(decisions/(.+?)\) \| (.+?) \| (.+) \|$", DESIGN, re.M)
    expected = []
    for file in RECORDS:
        number, title, day, _ = read_head(file.read_text())
        expected.append((number, file.name, day.isoformat(), title))
    assert sorted(rows) == expected


def test_the_layers_of_the_design_page_are_those_that_are_held() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = project["tool"]["importlinter"]["contracts"]
    held = [re.split(r" [|:] ", layer.replace("otafl.", "")) for layer in contract["layers"]]
    drawn = re.search(r"\n\n((?:    .+\n)+)", DESIGN)
    assert drawn
    assert [line.split() for line in drawn[1].splitlines()] == held


def test_the_round_of_the_design_page_is_the_engine_s() -> None:
    """The steps are the methods that `Engine.run_round` calls, in order of their first calls."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(Engine.run_round)))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda call: (call.end_lineno, call.end_col_offset))
    names = [re.fullmatch(r"(?:self\.)?(\w+)", ast.unparse(call)) for call in calls]
    steps = [name[1] for name in names if name and (name[0] != name[1] or name[1] == "deliver")]
    told = re.findall(r"^\| `(\w+)` \|", DESIGN, re.M)
    assert told == list(dict.fromkeys(steps))


def read_diagram() -> list[str]:
    """Return the lines of the diagram of the round."""
    drawn = re.search(r"```text\n( server .+?)```", DESIGN, re.S)
    assert drawn
    return drawn[1].splitlines()


def annotated(function: Callable[..., object]) -> tuple[set[str], set[str]]:
    """Return the classes that the parameters of a function name, and those of its result."""
    found = dict(function.__annotations__)
    result = set(re.findall(r"\b\w+\b(?!\.)", str(found.pop("return"))))
    return set(re.findall(r"\b\w+\b(?!\.)", " ".join(map(str, found.values())))), result


def test_the_diagram_has_every_step_of_the_round_in_order() -> None:
    steps = re.findall(r"^\| `(\w+)` \|", DESIGN, re.M)
    words = re.findall(r"[a-z_]+", " ".join(read_diagram()).replace("link.channel", ""))
    assert list(dict.fromkeys(word for word in words if word in steps)) == steps


def read_edges() -> list[tuple[set[str], str, set[str]]]:
    """Return the steps of the diagram's last column, each with the classes above and below it."""
    lines = read_diagram()
    column = lines[0].index("clock") + 2
    cells = [re.match(r"│ (\w+)", line[column:]) for line in lines]
    classes = [set(re.findall(r"[A-Z]\w+", line)) for line in lines]

    def nearest(places: Iterable[int]) -> set[str]:
        return next((classes[at] for at in places if cells[at] is None and classes[at]), set())

    return [
        (nearest(range(at, 0, -1)), cell[1], nearest(range(at, len(lines))))
        for at, cell in enumerate(cells)
        if cell is not None and cell[1] not in ("find_available", "select_cohort")
    ]


@pytest.mark.parametrize(("above", "step", "below"), read_edges())
def test_the_diagram_has_what_the_steps_take_and_give(
    above: set[str], step: str, below: set[str]
) -> None:
    takes, gives = annotated(deliver if step == "deliver" else getattr(Engine, step))
    if step == "deliver":
        assert above == {"Update"}
        assert {name.title() for name in Update.__annotations__} & takes == {"Payload", "Cohort"}
        assert {"ChannelState", "TransmitLimits"} < takes
        assert gives == {"Received", "LinkReport", "tuple"}
    elif step in ("start_clock", "train_and_encode", "admit"):
        assert above <= takes
        assert below <= gives
    else:
        assert takes & {"Update", "ChannelState", "LinkReport"}


def test_the_diagram_has_what_its_other_arrows_hand_on() -> None:
    takes, gives = annotated(Engine.select_cohort)
    assert "ChannelState" in takes
    assert {"Cohort"} == gives
    assert "ChannelState" in annotated(Engine.draw_channel)[1]
    assert annotated(Engine.compute_limits)[1] == {"TransmitLimits"}
    assert "Received" in annotated(Engine.update_server)[0]
    assert "Delivery" in annotated(Downlink.send)[1]


def test_the_diagram_has_what_the_engine_keeps() -> None:
    """What is drawn in lower case besides is an attribute of the engine or its parts, or a name in
    `Engine.run_round`."""
    source = inspect.getsource(Engine)
    names = set(re.findall(r"\b[a-z_]+\b", inspect.getsource(Engine.run_round)))
    names |= set(re.findall(r"self\.([a-z_]+) ?[:=(]", source)) | set(Parts.__annotations__)
    words = re.findall(r"[a-z_]+", re.sub(r"\(.*\)|[A-Z]\w+", "", " ".join(read_diagram())))
    assert set(words) <= names
