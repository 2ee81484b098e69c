"""Lists the settings of a scenario with the files that use each.

    python scripts/settings_users.py [--all]

A setting is a key of a section with one meaning, whichever components have it. It is used where it
stands as a key of YAML (also in a program's text), as a dotted key (`--set power.threshold=1`), or
as a key or keyword of a program. Where no component stands beside it, it counts for those that the
file names. Without --all the settings are printed that only pages and tests use.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from otafl.scenario import build_json_schema

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "study": ("studies",),
    "scenario": ("scenarios", "otafl/presets"),
    "example": ("examples",),
    "paper": ("paper", "tests/papers"),
    "benchmark": ("benchmarks",),
    "page": ("docs", "README.md"),
    "test": ("tests", "otafl/validation"),
}
"""Kind of a user -> where it lies; a file is of the first kind that has it."""
FEW = {"": "nothing", "test": "tests alone", "page": "pages alone", "page test": "pages and tests"}
"""Kinds of all users -> what is said of them."""
BLOCK = re.compile(r"^```\{?([\w-]*).*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
Settings = dict[tuple[str, str], set[str]]
"""(Dotted key, meaning) -> the components that have it."""


def list_settings(schema: dict[str, Any]) -> Settings:
    """List the settings of a JSON schema."""
    found: Settings = defaultdict(set)

    def walk(kind: dict[str, Any], key: str, names: set[str], meaning: str) -> None:
        kind = schema["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
        fields, nested = kind.get("properties", {}), kind.get("anyOf", []) + kind.get("oneOf", [])
        own = fields.get("name", {})
        names = set(own.get("enum", [own["const"]] if "const" in own else names))
        for name in fields.keys() - {"name", "extends", "sweep"}:
            walk(
                fields[name], f"{key}.{name}".strip("."), names, fields[name].get("description", "")
            )
        if fields:
            found.pop((key, meaning), None)  # it is a section
        elif not any("oneOf" in one for one in nested):
            found[key, meaning] |= names
        if not any(one.get("type") == "number" for one in nested):  # or its distribution
            for one in [*nested, kind.get("items", {})]:
                if one.keys() & {"$ref", "oneOf", "items", "properties"}:
                    walk(one, key, names, meaning)

    walk(schema, "", set(), "")
    return dict(found)


def iterate_data(language: str, text: str) -> Iterator[Any]:
    """Yield the nested data of YAML, of a program's parts, or the words of a command."""
    if language == "md":
        for block in BLOCK.findall(text):
            yield from iterate_data(*block)
    elif language == "yaml":
        try:
            yield from yaml.safe_load_all(text)
        except (yaml.YAMLError, ValueError, KeyError):
            return  # a text for people, or one that a test has refused
    elif language in ("py", "python", "code-cell"):
        program = re.sub(r"^([:%].*|>>> |\.\.\. )", "", text, flags=re.MULTILINE)
        for data in map(read_node, ast.walk(ast.parse(program))):
            yield data
            if isinstance(data, str) and ":" in data and "&" not in data:
                yield from iterate_data("yaml", data)
    else:
        yield from text.split()


def read_node(node: ast.AST | None) -> Any:
    """Return a literal, or a call's keywords with its name and arguments."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [read_node(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(read_node(k)): read_node(v) for k, v in zip(node.keys, node.values, strict=True)
        }
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).removesuffix("Settings").rstrip(".").rpartition(".")[2]
        given = {str(one.arg): read_node(one.value) for one in node.keywords}
        return {"name": called, **given, "": [read_node(one) for one in node.args]}
    return None


def iterate_keys(data: Any, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield the dotted keys of nested data and the words beside each, texts as keys."""
    if isinstance(data, dict):
        words = {simplify(one) for one in (data.get("name"), *data.get("", ()))}
        for key, value in data.items():
            at = path if key in ("", "sweep", "zip") else f"{path}.{key}"
            yield at, words
            yield from iterate_keys(value, at)
    elif isinstance(data, list):
        for one in data:
            yield from iterate_keys(one, path)
    elif isinstance(data, str):
        key = re.split("[=:]", data.removeprefix("--set="))[0]
        yield key.removeprefix("sweep."), {simplify(data)}


def simplify(name: Any) -> str:
    """Return a name as a component and its class both have it."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def find_users(
    settings: Settings, root: Path = ROOT
) -> dict[tuple[str, str], dict[str, list[str]]]:
    """Return the files that use each setting, by what they are."""
    alike = defaultdict[str, list[tuple[tuple[str, str], set[str]]]](list)
    for (key, meaning), names in settings.items():
        section, _, last = key.rpartition(".")
        words = set(map(simplify, names or {section.rpartition(".")[2]}))
        alike[last].append(((key, meaning), words))
    users = {one: defaultdict[str, list[str]](list) for one in sorted(settings)}
    seen = set[Path]()
    for kind, places in PLACES.items():
        below = {path for place in places for path in (root / place, *(root / place).rglob("*"))}
        for path in sorted(below - seen):
            seen.add(path)
            if not path.is_file() or path.suffix not in (".yaml", ".py", ".md"):
                continue
            data = iterate_data(path.suffix[1:], path.read_text())
            given = [pair for one in data for pair in iterate_keys(one)]
            named = set[str]().union(*(words for _, words in given))
            used = set()
            for at, beside in given:
                meant = alike.get(at.rpartition(".")[2], [])
                rooted = [one for one in meant if f".{at}".endswith(f".{one[0][0]}")]
                having = set[str]().union(*(words for _, words in rooted or meant))
                chosen = beside & having or named & having or (having if rooted else set())
                used |= {setting for setting, words in rooted or meant if words & chosen}
            for setting in used:
                users[setting][kind].append(str(path.relative_to(root)))
    return users


def main() -> None:
    """Print the settings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print every setting")
    every, counts = parser.parse_args().all, Counter[str]()
    settings = list_settings(build_json_schema())
    for setting, found in find_users(settings).items():
        group = FEW.get(" ".join(found), "others")
        counts[group] += 1
        if every or group != "others":
            shown = (f"{len(files)} {kind} ({files[0]})" for kind, files in found.items())
            names = f" ({', '.join(sorted(settings[setting]))})" if settings[setting] else ""
            print(f"{setting[0]}{names}: {', '.join(shown) or 'nothing'}")
    groups = (f"{name}: {counts[name]}" for name in (*FEW.values(), "others"))
    print(f"{len(settings)} settings, used by {', '.join(groups)}")


if __name__ == "__main__":
    main()
