"""SQL text as values: parse, evaluate on Arrow, prune by statistics. Pure."""
