"""`df.writeStream.partitionBy(...)` and `clusterBy(...)` for `format("lakeseal")`.

Spark keeps what it is told there for its built-in sinks, and a Python sink can see nothing of it: neither options nor
schema nor plan have it. So `heed` makes the user's side say it once more, as the option `partitionBy` or `clusterBy`,
when a stream into a table is started; to other formats it changes nothing.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import msgspec
from pyspark.sql import SparkSession

_CLASSIC = "pyspark.sql.streaming.readwriter"
_CONNECT = "pyspark.sql.connect.streaming.readwriter"
_SAID = "_lakeseal_said"
_IN_START = ("format", "partitionBy")


def heed(name: str, spark: SparkSession) -> None:
    """Makes stream writers of sessions of this kind pass on what they are told about a format's layout."""
    of_connect = type(spark).__module__.startswith("pyspark.sql.connect.")
    writer = importlib.import_module(_CONNECT if of_connect else _CLASSIC).DataStreamWriter
    if not hasattr(writer.start, _SAID):
        for method in ("format", "partitionBy", "clusterBy"):
            setattr(writer, method, _noting(getattr(writer, method), method))
        for method in ("start", "toTable"):
            setattr(writer, method, _passing_on(getattr(writer, method), name))


def _noting(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(method)
    def noted(self: Any, *told: Any) -> Any:
        said = self.__dict__.setdefault(_SAID, {})
        said[name] = told[0] if len(told) == 1 else told
        return method(self, *told)

    return noted


def _passing_on(method: Callable[..., Any], format_name: str) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def started(self: Any, *given: Any, **named: Any) -> Any:
        here = signature.bind(self, *given, **named).arguments
        said = {
            **self.__dict__.get(_SAID, {}),
            **{name: here[name] for name in _IN_START if here.get(name) is not None},
        }
        if str(said.get("format", "")).lower() == format_name:
            for name in ("partitionBy", "clusterBy"):
                columns = said.get(name)
                if columns:
                    listed = [columns] if isinstance(columns, str) else list(columns)
                    self.option(name, msgspec.json.encode(listed).decode())
        return method(self, *given, **named)

    setattr(started, _SAID, True)
    return started
