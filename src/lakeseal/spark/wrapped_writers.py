"""What users tell Spark's own writers, where a data source in Python cannot see it: the writers say it once more.

- `df.writeStream.partitionBy(...)` and `clusterBy(...)`: Spark keeps what it is told there for its built-in sinks;
  neither options nor schema nor plan have it. So it is said as the option `partitionBy` or `clusterBy`, when a stream
  into a table is started.
- `df.write.mode("overwrite").save()` in a session whose `spark.sql.sources.partitionOverwriteMode` is dynamic: a source
  is not told of the session. So it is said as the option `partitionOverwriteMode`.
- `df.write.save()` to a table with `delta.autoOptimize.optimizeWrite`: a source takes rows as they lie in tasks. So the
  rows are brought together before, as `Table.write` does it.
- `df.write.saveAsTable(name)`: Spark would write the rows and then keep a schema that says nothing of the place. So it
  is done in two steps that work: the rows are saved by `path`, then the name is made of the table. A name that is there
  is written to where it is.

To other formats it changes nothing.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError
from lakeseal.protocol.properties import TableProperties
from lakeseal.spark.engine import brought_together
from lakeseal.spark.options import TABLE_OPTIONS
from lakeseal.spark.read_options import ReadOptions
from lakeseal.spark.sink_options import SinkOptions, listed
from lakeseal.spark.spark_catalog import SAVED, make_name, named_place
from lakeseal.spark.tree_options import is_of_repository

_SAID = "_lakeseal_said"
_IN_START = ("format", "partitionBy")
_SAYING = ("format", "mode", "option", "options", "partitionBy", "clusterBy", "bucketBy", "sortBy")
_CALLS = "_lakeseal_calls"
_OPTIMIZED = "delta.autoOptimize.optimizeWrite"
_SAY_WHICH_ROWS = ("partitionoverwritemode", "replacewhere")


def wrap_writers(format_name: str, spark: SparkSession) -> None:
    """Those of all sessions of this kind, classic or Connect; done once."""
    of_connect = type(spark).__module__.startswith("pyspark.sql.connect.")
    package = "pyspark.sql.connect" if of_connect else "pyspark.sql"
    _wrap_stream_writer(importlib.import_module(f"{package}.streaming.readwriter").DataStreamWriter, format_name)
    _wrap_writer(importlib.import_module(f"{package}.readwriter").DataFrameWriter, format_name)


def _wrap_stream_writer(writer: Any, format_name: str) -> None:
    if hasattr(writer.start, _SAID):
        return
    for method in ("format", "partitionBy", "clusterBy"):
        setattr(writer, method, _noting_layout(getattr(writer, method), method))
    for method in ("start", "toTable"):
        setattr(writer, method, _passing_on(getattr(writer, method), format_name))


def _noting_layout(method: Callable[..., Any], name: str) -> Callable[..., Any]:
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


def _wrap_writer(writer: Any, format_name: str) -> None:
    if hasattr(writer.saveAsTable, _SAID):
        return
    for method in _SAYING:
        if hasattr(writer, method):
            setattr(writer, method, _noting_call(getattr(writer, method)))
    for method in ("format", "mode", "option", "options"):
        setattr(writer, method, _noting_options(getattr(writer, method)))
    writer.saveAsTable = _naming(writer.saveAsTable, format_name)
    writer.save = _saving(writer.save, format_name)


def _noting_options(method: Callable[..., Any]) -> Callable[..., Any]:
    name = method.__name__

    @wraps(method)
    def noted(self: Any, *told: Any, **named: Any) -> Any:
        said = self.__dict__.setdefault(_SAID, {})
        if name == "option":
            key, value = (*told, *named.values())
            said[str(key).lower()] = value
        elif name == "options":
            said.update({key.lower(): value for key, value in named.items()})
        elif (*told, *named.values())[0] is not None:
            said[f"{name}()"] = (*told, *named.values())[0]
        return method(self, *told, **named)

    return noted


def _noting_call(method: Callable[..., Any]) -> Callable[..., Any]:
    """What was said to a writer, to say it to another."""

    @wraps(method)
    def noted(self: Any, *told: Any, **named: Any) -> Any:
        self.__dict__.setdefault(_CALLS, []).append((method, told, named))
        return method(self, *told, **named)

    return noted


def _told(method: Callable[..., Any], self: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """What a writer was told before this call and by it."""
    here = dict(inspect.signature(method).bind(self, *given, **named).arguments)
    said = dict(self.__dict__.get(_SAID, {}))
    said.update({key.lower(): value for key, value in here.pop("options", {}).items()})
    said.update({f"{key}()": value for key, value in here.items() if value is not None and key != "self"})
    return said


def _is_ours(said: Mapping[str, Any], format_name: str) -> bool:
    return str(said.get("format()", "")).lower() == format_name


def _saving(method: Callable[..., Any], format_name: str) -> Callable[..., Any]:
    @wraps(method)
    def saved(self: Any, *given: Any, **named: Any) -> Any:
        said = _told(method, self, given, named)
        if _is_ours(said, format_name):
            self.option(SAVED, "true")
            if _is_dynamic_by_session(self._spark, said):
                self.option("partitionOverwriteMode", "dynamic")
            self = _of_rows_together(self, said)
        return method(self, *given, **named)

    return saved


def _of_rows_together(writer: Any, said: Mapping[str, Any]) -> Any:
    """The same writer, or one of the same rows brought together, where the table asks for few files."""
    options = {key: str(value) for key, value in said.items() if not key.endswith("()") and value is not None}
    if said.get("path()") is not None:
        options["path"] = str(said["path()"])
    if is_of_repository(options):
        return writer
    try:
        snapshot = SinkOptions.from_options(options).open().snapshot()
    except LakesealError:
        return writer  # who writes will be told
    new = {_OPTIMIZED: options.get(_OPTIMIZED.lower(), "false").lower()}
    asked = TableProperties(configuration=new if snapshot is None else snapshot.metadata.configuration)
    if not asked.optimize_write:
        return writer
    by = listed("partitionBy", options.get("partitionby")) if snapshot is None else snapshot.partition_columns
    together = type(writer)(brought_together(writer._df, by or ()))
    for method, told, named in writer.__dict__.get(_CALLS, []):
        method(together, *told, **named)
    return together


def _is_dynamic_by_session(spark: SparkSession, said: Mapping[str, Any]) -> bool:
    """Whether the session decides which rows an overwrite replaces, and that these are those of some partitions."""
    if str(said.get("mode()", "")).lower() != "overwrite":
        return False
    replaces_schema = str(said.get("overwriteschema", "false")).lower() != "false"
    if replaces_schema or any(said.get(name) is not None for name in _SAY_WHICH_ROWS):
        return False
    if said.get("branch") is not None and said.get("partitionby") is None:
        return False  # all that is in the directory is one partition
    return str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")).lower() == "dynamic"


def _naming(method: Callable[..., Any], format_name: str) -> Callable[..., Any]:
    @wraps(method)
    def saved_as_table(self: Any, *given: Any, **named: Any) -> Any:
        said = _told(method, self, given, named)
        if not _is_ours(said, format_name):
            return method(self, *given, **named)
        name, mode = said["name()"], str(said.get("mode()", "error")).lower()
        there = self._spark.catalog.tableExists(name)
        place = named_place(self._spark, name) if there else _place(said)
        if place is None:
            return method(self, *given, **named)  # another format's, of which Spark knows what to say
        exists = there or ReadOptions.from_options(place).open().snapshot() is not None
        if exists and mode == "ignore":
            return None
        if exists and mode in ("error", "errorifexists"):
            raise AlreadyExists(
                "There is a table already", table=name, hint='Say mode("append"), mode("overwrite") or mode("ignore")'
            )
        options = {key: value for key, value in said.items() if not key.endswith("()")}
        if said.get("partitionBy()"):
            by = said["partitionBy()"]
            options["partitionBy"] = by if isinstance(by, str) else ",".join(by)
        how = "overwrite" if mode == "overwrite" else "append"
        self.format(format_name).mode(how).options(**{**options, **place}).save()
        if not there:
            make_name(self._spark, name, place)
        return None

    setattr(saved_as_table, _SAID, True)
    return saved_as_table


def _place(said: Mapping[str, Any]) -> dict[str, str]:
    place = {name: str(said[name]) for name in TABLE_OPTIONS if said.get(name)}
    if not place.keys() & set(TABLE_OPTIONS[:2]):
        raise InvalidArgument("A table of Lakeseal has a place of its own", hint="Give it: .option('path', uri)")
    return place
