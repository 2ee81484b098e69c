"""Foundations: contracts, settings, registry, random streams, errors and files."""
