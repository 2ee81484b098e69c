"""Archive of a result for a repository that gives it a DOI: one zip file, an RO-Crate.

The zip contains the result as one NetCDF file with its checksum, the trained models beside it, the
scenario, the files that it names, the environment, CITATION.cff, and ro-crate-metadata.json, which
describes all of them. `otafl run scenario.yaml` in the unpacked folder finds the named files, and
user-defined modules. Data sets are not in it; they have the checksum of their samples.

References
----------
Sefton et al. 2023, "RO-Crate Metadata Specification 1.1.3", sections "Root Data Entity", "Data
    Entities" and "Provenance of entities".
"""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from otafl.core import checksums
from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.results import header, origins
from otafl.results.conversion import convert
from otafl.results.files import open_results
from otafl.results.models import list_model_files
from otafl.scenario import Scenario, axes
from otafl.scenario.keys import flatten
from otafl.scenario.reading import INPUT_FILES
from otafl.scenario.yaml_source import dump
from otafl.user_code import sources

CRATE = "https://w3id.org/ro/crate/1.1"
METADATA = "ro-crate-metadata.json"


def write_archive(result: Path, out: Path, authors: Sequence[str], license: str) -> list[str]:
    """Write the archive of a result, and return a sentence for each input that it lacks.

    Inputs are the files that the scenario names, and user-defined modules. The archive contains
    those whose hashes are the same as during the run. None of them is imported.

    Parameters
    ----------
    result : Path
        Result file, or folder of a sweep.
    out : Path
        Zip file, which must not exist.
    authors : sequence of str
        Names of the authors.
    license : str
        SPDX identifier of the licence, such as "CC-BY-4.0".

    Returns
    -------
    list of str
        Inputs that are missing or have changed since the run.

    Raises
    ------
    UserError
        For a result that cannot be read or is unfinished, and another or a taken name.
    """
    if out.suffix != ".zip" or out.exists():
        raise UserError(f"{out}: expected a new file that ends in .zip; give another name")
    about = open_results(result).attrs
    if not about["complete"]:
        raise UserError(f"{result}: is unfinished; the command that made it resumes it")
    inputs, lacking = _find_inputs(about)
    environment = [f"{name}: {value}" for name, value in origins.list_environment(about)]
    scenario = json.dumps(header.read_scenario(about))
    for name, path in inputs.items():  # whole values, with their quotation marks
        scenario = scenario.replace(json.dumps(str(path)), json.dumps(name))
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them as below.",
        "type": "dataset",
        "title": about["title"],
        "authors": [{"name": name} for name in authors],
        "license": license,
    }
    texts = {
        "scenario.yaml": dump(json.loads(scenario)),
        "environment.txt": "\n".join([*environment, *lacking, ""]),
        "CITATION.cff": yaml.safe_dump(citation, sort_keys=False, allow_unicode=True),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = result
        if result.is_dir():
            file = Path(folder) / f"{result.resolve().name}.nc"
            convert(result, file)
        files = {one.name: one for one in (file, checksums.get_path(file)) if one.exists()}
        files |= {f"{path.parent.name}/{path.name}": path for path in list_model_files(result)}
        described = dict.fromkeys([*files, *texts], "Part of the result")
        described |= {name: f"Input, which the run read as {inputs[name]}" for name in inputs}
        crate = _describe(described, about, authors, license)
        files |= inputs
        texts[METADATA] = json.dumps(crate, indent=2, ensure_ascii=False) + "\n"
        with write_atomically(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, path in files.items():
                archive.write(path, name)
            for name, text in texts.items():
                archive.writestr(name, text)
    return lacking


def _find_inputs(about: Mapping[str, Any]) -> tuple[dict[str, Path], list[str]]:
    """Return the inputs that are as the run read them, by their names in the archive.

    The second value has a sentence for each other input.
    """
    recorded, named = defaultdict[str, set[str]](set), set[str]()
    tree, made = header.read_scenario(about), origins.read(about)
    sweep, _ = axes.read(tree.get("sweep"), Scenario, tree)
    for number, point in enumerate(axes.iterate_points(sweep)):
        keys = flatten(axes.apply_point(tree, point))
        paths = [str(value) for key, value in keys if key.split(".")[-1] in INPUT_FILES]
        named |= {*paths}
        for origin in (one for one in made if number in one.points):
            known = origin.inputs or {}
            found = {path: known.get(path, known.get(Path(path).name)) for path in paths}
            for name, digest in (found | (origin.sources or {})).items():
                if digest is not None:  # a user-defined component's own keys are not recorded
                    recorded[name].add(digest)
    files, lacking = dict[str, Path](), list[str]()
    for name, digests in recorded.items():
        is_module = name.endswith(".py") and not {"/", ".."} & {*Path(name).parts}
        folders = [Path(), *map(Path, sys.path)] if is_module or name in named else []
        there = [folder / name for folder in folders if (folder / name).is_file()]
        hash_fn = sources.hash_file if name in named else sources.hash_code
        if same := next((path for path in there if {hash_fn(path)} == digests), None):
            files[f"inputs/{len(files)}/{same.name}" if name in named else name] = same
        else:
            fault = "has changed since the run" if there else "is missing"
            lacking.append(
                f"{name}: {fault}, so the archive does not contain it; publish it too, or put back "
                "what the run read (a module into the working folder) and write another archive"
            )
    return files, lacking


def _describe(
    names: Mapping[str, str], about: Mapping[str, Any], authors: Sequence[str], license: str
) -> dict[str, Any]:
    """Return the metadata of files, the result first: a JSON-LD graph of entities.

    names: of the files, each with its description.
    """
    terms, title = f"https://spdx.org/licenses/{license}", about["title"]
    ids = [quote(name) for name in names]

    def make(key: str, kind: str, **properties: Any) -> dict[str, Any]:
        return {"@id": key, "@type": kind, **properties}

    def link(*keys: str) -> list[dict[str, str]]:
        return [{"@id": key} for key in keys]

    root = make("./", "Dataset", name=title, license={"@id": terms}, hasPart=link(*ids))
    root["description"] = f"Result of the scenario {title}, simulated with otafl."
    root["datePublished"] = datetime.date.today().isoformat()
    root["author"] = link(*(f"#{name}" for name in authors))
    run = make("#run", "CreateAction", name="otafl run scenario.yaml", result=link(ids[0]))
    run |= {"instrument": link("#otafl"), "object": link("scenario.yaml")}
    graph = [
        make(METADATA, "CreativeWork", conformsTo={"@id": CRATE}, about={"@id": "./"}),
        *(root, run, make(terms, "CreativeWork", name=license)),
        make("#otafl", "SoftwareApplication", name="otafl", version=about["otafl_version"]),
        *(make(quote(name), "File", name=name, description=names[name]) for name in names),
        *(make(f"#{name}", "Person", name=name) for name in authors),
    ]
    return {"@context": f"{CRATE}/context", "@graph": graph}
