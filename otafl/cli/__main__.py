"""Entry point of `python -m otafl.cli`."""

from otafl.cli import main

main()
