"""Let `python -m otafl.cli` run the command line."""

from otafl.cli import main

main()
