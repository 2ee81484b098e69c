"""Archive of a result for a repository that gives it a DOI: one zip file, an RO-Crate.

The zip contains the result as one NetCDF file with its checksum, the trained models beside it, the
scenario, the environment, CITATION.cff, and ro-crate-metadata.json, which describes all of them.

References
----------
Sefton et al. 2023, "RO-Crate Metadata Specification 1.1.3", sections "Root Data Entity", "Data
    Entities" and "Provenance of entities".
"""

from __future__ import annotations

import datetime
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from otafl.core import checksums
from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.results import origins
from otafl.results.conversion import convert
from otafl.results.files import open_results
from otafl.results.models import list_model_files

CRATE = "https://w3id.org/ro/crate/1.1"
METADATA = "ro-crate-metadata.json"


def write_archive(result: Path, out: Path, authors: Sequence[str], license: str) -> None:
    """Write the archive of a result.

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
    environment = (f"{name}: {value}\n" for name, value in origins.list_environment(about))
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them as below.",
        "type": "dataset",
        "title": about["title"],
        "authors": [{"name": name} for name in authors],
        "license": license,
    }
    texts = {
        "scenario.yaml": about["scenario"],
        "environment.txt": "".join(environment),
        "CITATION.cff": yaml.safe_dump(citation, sort_keys=False, allow_unicode=True),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = result
        if result.is_dir():
            file = Path(folder) / f"{result.resolve().name}.nc"
            convert(result, file)
        files = {one.name: one for one in (file, checksums.get_path(file)) if one.exists()}
        files |= {f"{path.parent.name}/{path.name}": path for path in list_model_files(result)}
        crate = _describe([*files, *texts], about, authors, license)
        texts[METADATA] = json.dumps(crate, indent=2, ensure_ascii=False) + "\n"
        with write_atomically(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, path in files.items():
                archive.write(path, name)
            for name, text in texts.items():
                archive.writestr(name, text)


def _describe(
    names: Sequence[str], about: Mapping[str, Any], authors: Sequence[str], license: str
) -> dict[str, Any]:
    """Return the metadata of files, the result first: a JSON-LD graph of entities."""
    title, version = about["title"], about["otafl_version"]
    files = [{"@id": name, "@type": "File", "name": name} for name in names]
    people = [{"@id": f"#{name}", "@type": "Person", "name": name} for name in authors]
    terms = {"@id": f"https://spdx.org/licenses/{license}", "@type": "CreativeWork"}
    software = {"@id": "#otafl", "@type": "SoftwareApplication", "name": "otafl"}
    descriptor = {"@id": METADATA, "@type": "CreativeWork", "about": {"@id": "./"}}
    run = {"@id": "#run", "@type": "CreateAction", "name": "otafl run scenario.yaml"}
    root = {"@id": "./", "@type": "Dataset", "name": title, "license": {"@id": terms["@id"]}} | {
        "description": f"Result of the scenario {title}, simulated with otafl {version}.",
        "datePublished": datetime.date.today().isoformat(),
    }
    for key, entities in (("hasPart", files), ("author", people)):
        root[key] = [{"@id": one["@id"]} for one in entities]
    run |= {"object": {"@id": "scenario.yaml"}, "result": {"@id": names[0]}}
    graph = [descriptor | {"conformsTo": {"@id": CRATE}}, root, *files, *people]
    graph += [run | {"instrument": {"@id": "#otafl"}}, software | {"version": version}]
    return {"@context": f"{CRATE}/context", "@graph": [*graph, terms | {"name": license}]}
