"""The scenario: everything a run depends on, read from YAML, checked and filled in.

A section that chooses from a table of `otafl.registry` is a mapping with a `name`, or the name
alone; without a name it keeps its default choice. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from otafl import axes as _axes
from otafl import registry
from otafl.axes import Axis
from otafl.config import Config, stackable_keys
from otafl.faults_config import FaultsConfig
from otafl.keys import CHOICES, DEFAULTS, Path, choice, default, put, split
from otafl.scenario_checks import check
from otafl.scenario_errors import Problem, ScenarioError, Where, problems_of, truths_for_numbers
from otafl.scenario_sections import DevicesConfig, EngineConfig, OutputConfig, TrainingConfig
from otafl.transport.config import ImpairmentsConfig
from otafl.transport.config_signalling import SignallingConfig
from otafl.yaml_source import YamlError, dump, parse

if TYPE_CHECKING:
    # which classes these unions have is known to the registry alone
    Data: TypeAlias = Any
    Model: TypeAlias = Any
    Algorithm: TypeAlias = Any
    Channel: TypeAlias = Any
    Csi: TypeAlias = Any
    Receiver: TypeAlias = Any
    Power: TypeAlias = Any
    Codec: TypeAlias = Any
    Transport: TypeAlias = Any
    Server: TypeAlias = Any
    Downlink: TypeAlias = Any
else:
    Data, Model, Algorithm = choice("data"), choice("model"), choice("algorithm")
    Channel, Csi, Power = choice("channel"), choice("csi"), choice("power")
    Receiver, Codec, Transport = choice("receiver"), choice("codec"), choice("transport")
    Server = choice("server")
    Downlink = choice("downlink")


def _file_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.\-]*", name):
        raise ValueError(
            f"got {name!r}; must be letters, digits, '_', '-' and '.', as files are named after it"
        )
    return name


class Scenario(Config):
    """A wireless federated-learning experiment."""

    name: Annotated[str, AfterValidator(_file_name)] = Field(
        description="name of the run and of its files"
    )
    data: Data = Field(default("data"), description="data set and its partition over devices")
    model: Model = Field(default("model"), description="what is trained")
    algorithm: Algorithm = Field(default("algorithm"), description="federated method")
    channel: Channel = Field(default("channel"), description="radio channel of the uplink")
    csi: Csi = Field(default("csi"), description="what is known of the channel")
    receiver: Receiver = Field(default("receiver"), description="combining and receive scaling")
    power: Power = Field(default("power"), description="power control of the uplink")
    impairments: ImpairmentsConfig = Field(
        ImpairmentsConfig(), description="what else goes wrong on the uplink"
    )
    faults: FaultsConfig = Field(
        FaultsConfig(), description="what is done on purpose against the training"
    )
    codec: Codec = Field(default("codec"), description="compression of what is sent")
    transport: Transport = Field(default("transport"), description="how updates reach the server")
    signalling: SignallingConfig = Field(
        SignallingConfig(), description="what a slot takes beside its payload"
    )
    server: Server = Field(
        default("server"), description="what the server makes of the averaged increment"
    )
    downlink: Downlink = Field(default("downlink"), description="how the model reaches the devices")
    devices: DevicesConfig = Field(DevicesConfig(), description="the devices")
    training: TrainingConfig = Field(TrainingConfig(), description="the training")
    trials: int = Field(1, ge=1, description="Monte-Carlo trials of every point")
    seed: int = Field(0, ge=0, lt=2**63, description="root seed of all random numbers")
    sweep: dict[str, list[Any]] = Field(
        {},
        description="axes: dotted key -> values; a choice (power, power.name) replaces its whole "
        "section. zip: a list of mappings of keys that advance together",
    )
    engine: EngineConfig = Field(EngineConfig(), description="how it is computed")
    output: OutputConfig = Field(OutputConfig(), description="what is written")


@dataclass(frozen=True)
class Point:
    """A point of the sweep. coords: coordinate name -> value. scenario: without a sweep."""

    index: int
    coords: dict[str, Any]
    scenario: Scenario


def load_scenario(
    source: str | FilePath | Mapping[str, Any], overrides: Sequence[str] = ()
) -> Scenario:
    """A scenario from the path of a YAML file or from a mapping, every point of its sweep checked.

    overrides: texts `a.b=c`, c as in YAML, applied before anything is checked. Raises
    ScenarioError, which lists everything that is wrong.
    """
    if isinstance(source, Mapping):
        tree, where = _plain(source), Where()
    else:
        tree, where = _read(FilePath(source))
    tree, where = _overridden(tree, where, overrides)
    problems: list[Problem] = []
    try:
        scenario = Scenario.model_validate(tree)
    except ValidationError as error:
        problems = problems_of(error, tree, Scenario)
    problems += truths_for_numbers(tree, Scenario)
    sweep, faults = _axes.read(tree.get("sweep"), Scenario, tree)
    at_sweep = {fault.path for fault in faults}
    problems = [one for one in problems if one.path not in at_sweep] + faults
    problems += _swept_and_set(sweep, where)
    if problems:
        raise where.error(problems)
    _points(scenario, sweep, where)
    return scenario


def expand(scenario: Scenario) -> list[Point]:
    """Every point of the sweep, the last axis fastest; one point without a sweep. Raises
    ScenarioError for points that cannot be."""
    return _points(scenario, _sweep(scenario), Where())


def axes(scenario: Scenario) -> dict[str, Axis]:
    """Dim -> axis of the sweep, in the scenario's order."""
    return _axes.coordinates(_sweep(scenario), Scenario)


def stack_key(scenario: Scenario) -> str:
    """Points with the same key differ in stackable fields alone and can run in one stack."""
    outside = {"name", "trials", "seed", "sweep", "engine", "output"}
    return _digest(_structure(scenario, outside))


def stackable_values(scenario: Scenario) -> dict[str, float]:
    """`section.field` -> value of every stackable field that has one."""
    return dict(_stackable(scenario, ""))


def scenario_hash(scenario: Scenario) -> str:
    """SHA-256 of all that the results depend on: not the name, the folder nor, but for the
    precision, the engine."""
    tree = scenario.model_dump(mode="json", exclude={"name": True})
    tree["output"].pop("folder")
    tree["engine"] = {"dtype": tree["engine"]["dtype"]}
    tree["sweep"] = list(tree["sweep"].items())  # the order of the axes is the order of the dims
    return _digest(tree)


def to_yaml(scenario: Scenario) -> str:
    """The scenario with all defaults filled in, as YAML that `load_scenario` reads back."""
    tree = _name_first(scenario.model_dump(mode="json"))
    if not scenario.sweep:
        tree.pop("sweep")
    return dump(tree)


def json_schema() -> dict[str, Any]:
    """JSON schema of a scenario, for editors. `stackable: true` marks the numbers whose sweep
    costs least."""
    schema = Scenario.model_json_schema()
    definitions = schema["$defs"]
    for path, table in CHOICES.items():
        for name in registry.names(table):
            if name != DEFAULTS[table]:
                own = definitions[registry.config_class(table, name).__name__]
                own["required"] = ["name", *own.get("required", ())]
        alone: list[dict[str, Any]] = [{"enum": list(registry.names(table))}]
        if table in registry.CUSTOM:
            alone.append({"type": "string", "pattern": ":"})
        holders = [schema] if len(path) == 1 else list(definitions.values())
        for holder in holders:
            field = holder.get("properties", {}).get(str(path[-1]), {})
            if "oneOf" in field:
                field.pop("discriminator", None)
                field["anyOf"] = [*alone, {"oneOf": field.pop("oneOf")}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _read(file: FilePath) -> tuple[dict[str, Any], Where]:
    """What a file says and where; ScenarioError with the place where it is no YAML mapping."""
    try:
        source = parse(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScenarioError([f"{file}: cannot be read ({error.strerror})"]) from error
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{file}: is no UTF-8 text (byte {error.start})"]) from error
    except YamlError as error:
        at = "".join(f":{number}" for number in error.place or ())
        raise ScenarioError([f"{file}{at}: {error}"]) from error
    if source.data is None:
        raise ScenarioError([f"{file}: is empty; a scenario begins like 'name: my_run'"])
    if not isinstance(source.data, dict):
        kind = "a list" if isinstance(source.data, list) else "a single value"
        raise ScenarioError(
            [f"{file}:1:1: is {kind}; a scenario is a mapping of keys, like 'name: my_run'"]
        )
    return source.data, Where(str(file), source.places)


def _plain(value: Any) -> Any:
    """Mappings, sequences, paths and NumPy's numbers as YAML would give them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, FilePath):
        return str(value)
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


def _overridden(
    tree: dict[str, Any], where: Where, overrides: Sequence[str]
) -> tuple[dict[str, Any], Where]:
    texts: dict[Path, str] = {}
    problems = []
    for text in overrides:
        key, equals, value = text.partition("=")
        path = split(key.strip())
        texts[path] = text
        if not equals or not all(path):
            problems.append(Problem("must be of the form key=value, like channel.snr_db=10", path))
            continue
        try:
            tree = put(tree, path, parse(value).data)
        except YamlError as error:
            problems.append(Problem(str(error), path))
        except KeyError as error:
            holder = ".".join(error.args[0])
            problems.append(Problem(f"'{holder}' has no keys of its own", path))
    where = Where(where.label, where.places, texts)
    if problems:
        raise where.error(problems)
    return tree, where


def _swept_and_set(sweep: _axes.Sweep, where: Where) -> list[Problem]:
    """Overrides that an axis would override in turn."""
    problems = []
    for tracks in sweep:
        for track in tracks:
            if track.path in where.overrides or (*track.path, "name") in where.overrides:
                path = track.path if track.path in where.overrides else (*track.path, "name")
                text = f"this key is swept; say sweep.{track.key}=[...], or sweep={{}} for no sweep"
                problems.append(Problem(text, path))
    return problems


def _sweep(scenario: Scenario) -> _axes.Sweep:
    tree = scenario.model_dump()
    sweep, problems = _axes.read(scenario.sweep, Scenario, tree)
    if problems:
        raise Where().error(problems)
    return sweep


def _points(scenario: Scenario, sweep: _axes.Sweep, where: Where) -> list[Point]:
    base = scenario.model_dump(exclude_unset=True, exclude={"sweep"})
    dims = _axes.coordinates(sweep, Scenario)
    coords = [coord for axis in dims.values() for coord in axis.coords.items()]
    points, problems = [], _Collected(where)
    for index, settings in enumerate(_axes.points(sweep)):
        tree = _axes.applied(base, settings)
        try:
            one = Scenario.model_validate(tree)
        except ValidationError as error:
            problems.add(problems_of(error, tree, Scenario), settings)
            continue
        problems.add([*check(one), *truths_for_numbers(tree, Scenario)], settings)
        places = [place for _, place in settings]
        values = {name: c.values[i] for (name, c), i in zip(coords, places, strict=True)}
        points.append(Point(index, values, one))
    problems.raise_any()
    return points


class _Collected:
    """Problems of points, each said once, with the values of the axes that it comes from."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._found: dict[tuple[str, Path], tuple[Path, list[str]]] = {}

    def add(self, problems: Sequence[Problem], point: list[tuple[_axes.Track, int]]) -> None:
        for one in problems:
            touched = [at for at in point if _touches(at[0].path, (one.path, *one.others))]
            axis, place = one.path, one.path
            if touched:
                track, position = touched[0]
                axis, place = track.place, track.place_of(position)
            _, said = self._found.setdefault((one.message, axis), (place, []))
            if touched and _axes.said(touched) not in said:
                said.append(_axes.said(touched))

    def raise_any(self) -> None:
        problems = []
        for (message, _), (place, said) in self._found.items():
            more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
            prefix = f"sweep: {said[0]}{more}: " if said else ""
            problems.append(Problem(f"{prefix}{message}", place))
        if problems:
            raise self._where.error(problems)


def _touches(path: Path, paths: Sequence[Path]) -> bool:
    """Whether a key is above or below one of the others."""
    return any(path[: len(one)] == one or one[: len(path)] == path for one in paths if one)


def _structure(config: Any, outside: set[str]) -> Any:
    """What of a settings object forces a stack of its own, as plain data."""
    if isinstance(config, BaseModel):
        skip = {*stackable_keys(config), *outside}
        own = {name: value for name, value in config if name not in skip}
        return {name: _structure(value, set()) for name, value in own.items()}
    if isinstance(config, list | tuple):
        return [_structure(item, set()) for item in config]
    return config


def _stackable(config: BaseModel, prefix: str) -> list[tuple[str, float]]:
    marked = stackable_keys(config)
    found = []
    for name, value in config:
        if name in marked and value is not None:
            found.append((f"{prefix}{name}", float(value)))
        elif isinstance(value, BaseModel):
            found += _stackable(value, f"{prefix}{name}.")
    return found


def _name_first(tree: Any) -> Any:
    if isinstance(tree, dict):
        first = {"name": tree["name"]} if "name" in tree else {}
        return {key: _name_first(value) for key, value in (first | tree).items()}
    return tree


def _digest(tree: Any) -> str:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
