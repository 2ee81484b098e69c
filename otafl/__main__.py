"""Entry point of `python -m otafl`."""

from otafl.cli import main

main()
