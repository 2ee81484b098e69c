"""Transports whose server compares received energies, without any channel state information."""
