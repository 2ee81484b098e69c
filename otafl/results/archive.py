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
    terms, title = f"https://spdx.org/licenses/{license}", about["title"]

    def make(key: str, kind: str, **properties: Any) -> dict[str, Any]:
        return {"@id": key, "@type": kind, **properties}

    def link(*keys: str) -> list[dict[str, str]]:
        return [{"@id": key} for key in keys]

    root = make("./", "Dataset", name=title, license={"@id": terms}, hasPart=link(*names))
    root["description"] = f"Result of the scenario {title}, simulated with otafl."
    root["datePublished"] = datetime.date.today().isoformat()
    root["author"] = link(*(f"#{name}" for name in authors))
    run = make("#run", "CreateAction", name="otafl run scenario.yaml", result=link(names[0]))
    run |= {"instrument": link("#otafl"), "object": link("scenario.yaml")}
    graph = [
        make(METADATA, "CreativeWork", conformsTo={"@id": CRATE}, about={"@id": "./"}),
        *(root, run, make(terms, "CreativeWork", name=license)),
        make("#otafl", "SoftwareApplication", name="otafl", version=about["otafl_version"]),
        *(make(name, "File", name=name) for name in names),
        *(make(f"#{name}", "Person", name=name) for name in authors),
    ]
    return {"@context": f"{CRATE}/context", "@graph": graph}
