"""A pipeline from YAML, with the line of whatever is wrong in it.

`${NAME}` stands for an environment variable, `${NAME:-text}` for one that may be unset: that is where secrets go. What
follows a `$$` is taken as it is. `pipeline_schema` is the file's JSON schema, for editors that complete and check it
while one types.
"""

from __future__ import annotations

import datetime as dt
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.ingest import sources as _sources  # noqa: F401  makes the built-in kinds known
from lakeseal.ingest.config import (
    Check,
    CommitPolicy,
    Dataset,
    Delivery,
    OnBadRecord,
    PipelineConfig,
    Retries,
    Target,
)
from lakeseal.ingest.sources.source import any_source, source_types

T = TypeVar("T")

_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")
_PATH = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_STEPS = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")

_ID = "https://json-schema.org/draft/2020-12/schema"

Path_ = tuple[str | int, ...]


class RawDataset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dataset as it stands in the file; its source's fields depend on its type."""

    name: str
    source: dict[str, Any]
    target: Target
    transform: str | None = None
    quality: tuple[Check, ...] = ()
    commit: CommitPolicy = "full"
    on_bad_record: OnBadRecord = "fail"
    error_table: str | None = None
    timeout_seconds: float = 300.0
    retries: Retries = Retries()


class RawPipeline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    ledger: str
    datasets: tuple[dict[str, Any], ...]
    token: str | None = None
    delivery: Delivery = "exactly_once"
    lease_seconds: float = 60.0
    max_parallel: int = 8
    task_bytes: int = 128 * 2**20


def read_pipeline(path: str | os.PathLike[str]) -> PipelineConfig:
    return parse_pipeline(_text(path), str(Path(path)))


def read_head(path: str | os.PathLike[str]) -> RawPipeline:
    """What stands above the datasets; of these, nothing is filled in or looked at."""
    document = _Document(str(Path(path)), _text(path), leaving="datasets")
    head: RawPipeline = document.convert(document.value, RawPipeline, ())
    return head


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidArgument(f"There is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read: {error}") from error


def parse_pipeline(text: str, name: str = "pipeline.yaml") -> PipelineConfig:
    """`name` is what errors call the text."""
    document = _Document(name, text)
    raw = document.convert(document.value, RawPipeline, ())
    datasets = []
    for number, value in enumerate(raw.datasets):
        place: Path_ = ("datasets", number)
        for rule, text in enumerate(value["quality"] if isinstance(value.get("quality"), list) else ()):
            document.convert(text, Check, (*place, "quality", rule))
        one = document.convert(value, RawDataset, place)
        kind = one.source.get("type")
        if kind not in source_types():
            known = ", ".join(sorted(source_types()))
            raise document.error(
                f"There is no source of the type {kind!r}: known are {known}", (*place, "source", "type")
            )
        source = document.convert(one.source, any_source(), (*place, "source"))
        with document.at(place):
            fields = {name: getattr(one, name) for name in one.__struct_fields__}
            datasets.append(Dataset(**{**fields, "source": source}))
    with document.at(()):
        fields = {name: getattr(raw, name) for name in raw.__struct_fields__}
        return PipelineConfig(**{**fields, "datasets": tuple(datasets)})


class _Document:
    """A YAML document as plain values, and where in the text each of them stands."""

    def __init__(self, name: str, text: str, *, leaving: str | None = None) -> None:
        """Variables below the field `leaving` are left as they stand."""
        self._name = name
        self._leaving = leaving
        self._marks: dict[Path_, Any] = {}
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
            raise InvalidArgument(f"{name}{where}: this is not YAML: {error.problem or error.context}") from None
        except yaml.YAMLError as error:
            raise InvalidArgument(f"{name}: this is not YAML: {error}") from None
        if node is None:
            raise InvalidArgument(f"{name}: the file is empty")
        self._scalars = yaml.constructor.SafeConstructor()
        self.value = self._plain(node, ())

    def _plain(self, node: Any, path: Path_) -> Any:
        self._marks[path] = node.start_mark
        match node:
            case yaml.MappingNode():
                found: dict[str, Any] = {}
                for key, value in node.value:
                    name = key.value
                    if not isinstance(key, yaml.ScalarNode) or name == "<<":
                        self._marks[path] = key.start_mark
                        raise self.error("a key must be plain text", path)
                    if name in found:
                        self._marks[(*path, name)] = key.start_mark
                        raise self.error(f"{name!r} stands here twice", (*path, name))
                    found[name] = self._plain(value, (*path, name))
                    # An error about a field is best shown where its name stands.
                    self._marks[(*path, name)] = key.start_mark
                return found
            case yaml.SequenceNode():
                return [self._plain(one, (*path, n)) for n, one in enumerate(node.value)]
        value = self._scalars.construct_object(node)
        if isinstance(value, dt.date | dt.datetime):
            return node.value
        is_left = self._leaving is not None and path[:1] == (self._leaving,)
        return self._filled_in(value, path) if isinstance(value, str) and not is_left else value

    def _filled_in(self, text: str, path: Path_) -> str:
        def variable(found: re.Match[str]) -> str:
            if found[1] is None:
                return "$"
            value = os.environ.get(found[1], found[2])
            if value is None:
                raise self.error(f"the environment variable {found[1]} is not set", path)
            return value

        return _VARIABLE.sub(variable, text)

    def convert(self, value: Any, kind: Any, path: Path_) -> Any:
        try:
            return typed_json.convert(value, kind)
        except msgspec.ValidationError as error:
            text = str(error)
            found = _PATH.search(text)
            inner = path if found is None else (*path, *_steps(found[1]))
            message = text if found is None else text[: found.start()]
            if (unknown := _UNKNOWN.search(message)) is not None:
                inner, message = (*inner, unknown[1]), f"there is no field {unknown[1]!r} here"
            raise self.error(message[:1].lower() + message[1:], inner) from None
        except LakesealError as error:
            raise self.error(error.message, path, error.hint) from None

    def at(self, path: Path_) -> _At:
        return _At(self, path)

    def error(self, message: str, path: Path_, hint: str = "") -> InvalidArgument:
        place, mark = path, None
        while mark is None:
            mark = self._marks.get(place)
            if not place:
                break
            place = place[:-1]
        where = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        what = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        return InvalidArgument(
            f"{self._name}{where}: {what + ': ' if what else ''}{message}",
            hint=hint or "lakeseal ingest schema tells what may stand there",
        )


class _At:
    """Errors of values that were made of what stands at a place."""

    def __init__(self, document: _Document, path: Path_) -> None:
        self._document, self._path = document, path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LakesealError):
            raise self._document.error(error.message, self._path, error.hint) from None


def _steps(text: str) -> Iterator[str | int]:
    for name, number in _STEPS.findall(text):
        if name:
            yield name
        elif number != "...":
            yield int(number)


def pipeline_schema() -> dict[str, Any]:
    """With every kind of source that is known in this process."""
    kinds = dict(sorted(source_types().items()))
    (pipeline, dataset, *sources), parts = msgspec.json.schema_components(
        [RawPipeline, RawDataset, *kinds.values()], ref_template="#/$defs/{name}"
    )
    _described(parts, [RawPipeline, RawDataset, *kinds.values()])
    parts["RawPipeline"]["properties"]["datasets"]["items"] = dataset
    parts["RawDataset"]["properties"]["source"] = {"oneOf": sources}
    for name, number in (("RawPipeline", "pipeline"), ("RawDataset", "dataset")):
        parts[name]["title"] = number
    return {"$schema": _ID, "title": "A Lakeseal pipeline", **pipeline, "$defs": parts}


def _described(parts: dict[str, Any], kinds: list[Any]) -> None:
    for kind in kinds:
        text = inspect.getdoc(inspect.getmodule(kind))
        if text and kind.__name__ in parts:
            parts[kind.__name__]["description"] = text.partition("\n")[0]
