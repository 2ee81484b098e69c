"""Take parts that users have written: load, adapt and check them, and tell their errors."""
