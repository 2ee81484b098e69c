"""Studies: one folder each, with scenarios, the script that analyses them, page, figures and data.

The scripts are modules, run from the root of a checkout: `python -m studies.field.analyse studies`.
"""
