"""User-defined parts: their import, checks and error messages."""
