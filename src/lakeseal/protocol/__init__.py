"""The Delta format as values: no I/O, no clocks."""
