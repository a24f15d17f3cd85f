"""Packages that only some uses need: whoever lacks one is told which extra of Lakeseal brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from lakeseal.errors import Unsupported

BRINGS = {
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "pyspark": "spark",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
    "httptools": "server",
    "httpx": "server",
    "jinja2": "server",
    "prometheus_client": "server",
    "psycopg": "server",
    "starlette": "server",
    "uvicorn": "server",
}
"""Package → the extra that has it."""


def needed(package: str) -> Any:
    """The package itself."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise Unsupported(f"The package {error.name} is not installed", hint=install(package)) from error


def install(package: str) -> str:
    """The command that brings it."""
    return f"pip install 'lakeseal[{BRINGS[package]}]'"


@contextmanager
def brought(module: str) -> Iterator[None]:
    """Around what a module imports at its top: the extra is named instead of a package that its user never asked for.
    It stays the error that an import fails with."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in BRINGS:
            raise
        told = f"{module} needs the package {package}, which is not installed: {install(package)}"
        raise ModuleNotFoundError(told, name=error.name) from error
