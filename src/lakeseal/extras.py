"""Packages that only some uses need: whoever lacks one is told which extra of Lakeseal brings it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lakeseal.errors import Unsupported

BRINGS = {
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "pyspark": "spark",
}
"""Package → the extra that has it."""


def needed(package: str) -> Any:
    """The package itself."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The package {error.name} is not installed", hint=f"pip install 'lakeseal[{BRINGS[package]}]'"
        ) from error
