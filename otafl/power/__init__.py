"""Scale what devices send, and what the server receives of it (power policies)."""
