"""User-defined parts: their import, hashes, checks and error messages."""
