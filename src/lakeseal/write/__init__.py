"""A task's side of a write: Arrow batches → files and statistics under a `FileCommitProtocol`.

Knows neither Spark nor how tasks are run.
"""
