"""Sphinx: `python -m sphinx -W --keep-going -b html docs build/docs`, offline."""

import os
import re
import sys
from importlib.metadata import version as installed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the notebooks' kernels, that share the machine
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "otafl"
author = "The otafl developers"
project_copyright = author
version = release = installed("otafl")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "otafl_docs",
]
exclude_patterns = ["_ext", "paper"]
myst_heading_anchors = 3
nb_execution_mode = "force"  # what a notebook shows is of this otafl
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
myst_fence_as_directive = ["math"]
smartquotes = False
rst_prolog = """
.. role:: kind
.. role:: stackable
.. role:: required
"""
html_math_renderer = "outlines"
inventories = os.environ.get("OTAFL_DOCS_INVENTORIES", "")  # none: they come from the network
intersphinx_mapping = {
    name: (address, file or None)
    for name, address, file in re.findall(r"(\w+)=([^,\s]+)(?:,(\S+))?", inventories)
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.formula) > div.highlight > pre"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"otafl {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_ext" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False
