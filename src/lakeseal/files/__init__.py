"""Arrow batches ⇄ files: formats, what rows must keep to, partitions, spilling, uploads. Knows no jobs."""
