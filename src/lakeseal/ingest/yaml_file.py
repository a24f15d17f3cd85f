"""A pipeline from YAML, with the line of whatever is wrong in it.

`${NAME}` stands for a parameter of the pipeline, or else for a variable of the process's environment, where secrets go;
`${NAME:-text}` for one that may be unset. What follows a `$$` is taken as it is. Parameters are declared in `params`,
with a text, or with nothing if they must be given; `environments` has sets of them by name, and `Given` says which set
counts and what goes before it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.ingest import graph, idle_options
from lakeseal.ingest import sources as _sources  # noqa: F401  makes the built-in kinds known
from lakeseal.ingest.alerts import Alert
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
from lakeseal.ingest.lineage import Lineage
from lakeseal.ingest.metrics import RunMetrics
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.sources.source import any_source, source_types

T = TypeVar("T")

_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")
_PATH = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_STEPS = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")

_MOST_VALUES = 100_000
_DEEPEST = 50

_PARAMETERS = ("params", "environments")

Path_ = tuple[str | int, ...]


class RawDataset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where rows come from, what becomes of them, and where they go."""

    name: str
    """Watermarks go by it: with another name its source is read from the start."""
    source: dict[str, Any]
    """Where rows come from; `type` says which fields it has."""
    target: Target
    """Where rows go; `type` says which fields it has."""
    transform: str | PythonTransform | None = None
    """SQL over `input`, or over the datasets that it is made of; or a function of Python."""
    quality: tuple[Check, ...] = ()
    """Rules for rows, and for all of them together."""
    commit: CommitPolicy = "full"
    on_bad_record: OnBadRecord = "fail"
    error_table: str | None = None
    timeout_seconds: float = 300.0
    retries: Retries = Retries()
    """How often it is tried again, and how soon."""


Texts = dict[str, str | int | float | bool | None]


class Given(Struct, frozen=True, kw_only=True):
    """What whoever reads a file says about its parameters."""

    env: str | None = None
    params: Mapping[str, str] = {}


class RawPipeline(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all datasets of a pipeline share."""

    name: str
    """The ledger knows its runs and watermarks by it."""
    ledger: str
    datasets: tuple[dict[str, Any], ...]
    """Published together where they can be."""
    params: Texts = {}
    """Texts for `${NAME}`; nothing for one that must be given."""
    environments: dict[str, Texts] = {}
    """Other values of parameters, by the name of the environment."""
    token: str | None = None
    delivery: Delivery = "exactly_once"
    lease_seconds: float = 60.0
    max_parallel: int = 8
    task_bytes: int = 128 * 2**20
    alerts: tuple[Alert, ...] = ()
    """Who is told how a run ended."""
    lineage: Lineage | None = None
    """Where OpenLineage's events go."""
    metrics: RunMetrics | None = None
    """Where numbers for Prometheus are written."""


def read_pipeline(path: str | os.PathLike[str], given: Given | None = None) -> PipelineConfig:
    return parse_pipeline(_text(path), str(Path(path)), given)


def read_head(path: str | os.PathLike[str], given: Given | None = None) -> RawPipeline:
    """What stands above the datasets; of these, nothing is filled in or looked at."""
    document = _Document(str(Path(path)), _text(path), given, leaving="datasets")
    head: RawPipeline = document.convert(document.value, RawPipeline, ())
    return head


def _text(path: str | os.PathLike[str]) -> str:
    file = Path(path)
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidArgument(f"There is no file {file}", hint="lakeseal ingest init makes a first one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read: {error}") from error


def parse_pipeline(text: str, name: str = "pipeline.yaml", given: Given | None = None) -> PipelineConfig:
    """`name` is what errors call the text."""
    document = _Document(name, text, given)
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
    named = {one.name: one for one in datasets}
    for number, one in enumerate(datasets):
        with document.at(("datasets", number)):
            idle_options.check(one)
        with document.at(("datasets", number, "source")):
            graph.check(one, named)
    with document.at(()):
        fields = {name: getattr(raw, name) for name in raw.__struct_fields__ if name not in _PARAMETERS}
        return PipelineConfig(**{**fields, "datasets": tuple(datasets)})


class _Document:
    """A YAML document as plain values, and where in the text each of them stands."""

    def __init__(self, name: str, text: str, given: Given | None = None, *, leaving: str | None = None) -> None:
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
        except RecursionError:
            raise InvalidArgument(f"{name}: this is nested too deeply") from None
        if node is None:
            raise InvalidArgument(f"{name}: the file is empty")
        self._scalars = yaml.constructor.SafeConstructor()
        self._env = None if given is None else given.env
        self._params: dict[str, str | None] = {}
        self._params = self._chosen(node, given or Given())
        self.value = self._plain(node, ())

    def _chosen(self, node: Any, given: Given) -> dict[str, str | None]:
        """Every parameter that is declared, and its text; None if it must be given and is not."""
        top = node.value if isinstance(node, yaml.MappingNode) else ()
        declared = {key.value: self._plain(value, (key.value,)) for key, value in top if key.value in _PARAMETERS}
        params = self.convert(declared.get("params") or {}, Texts, ("params",))
        sets = self.convert(declared.get("environments") or {}, dict[str, Texts], ("environments",))
        if given.env is not None and given.env not in sets:
            known = ", ".join(sorted(sets)) or "none"
            raise self.error(f"there is no environment {given.env!r}: known are {known}", ("environments",))
        every = {**dict.fromkeys(name for one in sets.values() for name in one), **params}
        for name in given.params:
            if name not in every:
                known = ", ".join(sorted(every)) or "none"
                raise self.error(f"there is no parameter {name!r}: known are {known}", ("params",))
        every |= sets.get(given.env or "", {})
        texts = {name: None if value is None else _as_text(value) for name, value in every.items()}
        return {**texts, **given.params}

    def _plain(self, node: Any, path: Path_) -> Any:
        self._marks[path] = node.start_mark
        # An alias stands for all that it names, which may be aliases of more, or of itself.
        if len(self._marks) > _MOST_VALUES or len(path) > _DEEPEST:
            raise self.error(f"this has more than {_MOST_VALUES:,} values, or more than {_DEEPEST} levels", path[:3])
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
        try:
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError):
            # Of a tag that is none of YAML's own, or a text that is none of its kind: 2024-13-45.
            kind = node.tag.rpartition(":")[2][:100]
            raise self.error(f"this cannot be read as {kind}", path, "Put it in quotes if it is a text") from None
        if isinstance(value, dt.date | dt.datetime):
            return node.value
        is_left = self._leaving is not None and path[:1] == (self._leaving,)
        is_left |= path[:1] == ("environments",) and path[1:2] != (self._env,)  # their secrets need not be here
        return self._filled_in(value, path) if isinstance(value, str) and not is_left else value

    def _filled_in(self, text: str, path: Path_) -> str:
        def variable(found: re.Match[str]) -> str:
            if found[1] is None:
                return "$"
            value = self._params.get(found[1])
            if value is None:
                value = os.environ.get(found[1], found[2])
            if value is None and found[1] in self._params:
                raise self.error(f"the parameter {found[1]} is not given", path)
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


def _as_text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _steps(text: str) -> Iterator[str | int]:
    for name, number in _STEPS.findall(text):
        if name:
            yield name
        elif number != "...":
            yield int(number)
