"""Logs that other clients wrote, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakeseal.protocol import codec, paths
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.features import check_readable
from lakeseal.protocol.properties import Property, TableProperties
from lakeseal.protocol.schema import StructType


@pytest.fixture(scope="module")
def logs(shared_tables: Path) -> list[tuple[Path, str]]:
    """Every file below a `_delta_log`, with its name in it."""
    found = [
        (file, file.relative_to(log).as_posix())
        for log in sorted(shared_tables.rglob("_delta_log"))
        for file in sorted(log.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    ]
    assert found
    return found


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(content) for key, content in value.items() if content is not None}
    return value


def test_every_line_survives_decoding_and_encoding(logs: list[tuple[Path, str]]) -> None:
    for file, name in logs:
        if name.endswith(".json"):
            data = file.read_bytes()
            written = codec.encode(codec.decode(data)).splitlines()
            before = [without_nulls(json.loads(line)) for line in data.splitlines() if line.strip()]
            assert [without_nulls(json.loads(line)) for line in written] == before, file


def test_every_name_is_known(logs: list[tuple[Path, str]]) -> None:
    unknown = [
        name
        for _, name in logs
        if paths.parse(name) is None and name != "_last_checkpoint" and not name.startswith("_sidecars/")
    ]
    assert unknown == []


def test_every_schema_survives_and_has_an_arrow_form(logs: list[tuple[Path, str]]) -> None:
    schemas = {
        action.schema_string
        for file, name in logs
        if name.endswith(".json")
        for action in codec.decode(file.read_bytes())
        if isinstance(action, Metadata) and action.schema_string
    }
    assert schemas
    for text in schemas:
        schema = StructType.from_json(text)
        assert schema.to_json() == text
        assert from_arrow(to_arrow(schema)) == schema


def test_every_table_is_readable_or_says_why_not(logs: list[tuple[Path, str]]) -> None:
    refused = {}
    for file, name in logs:
        if name.endswith(".json"):
            for action in codec.decode(file.read_bytes()):
                if isinstance(action, Protocol):
                    try:
                        check_readable(action, table=str(file))
                    except Exception as error:
                        refused[file.parents[1].as_posix()] = error
    assert {type(error).__name__ for error in refused.values()} <= {"UnsupportedFeature", "InvalidMetadata"}
    assert all("invalid-protocol" in table for table in refused), refused


def test_every_property_that_is_set_parses(logs: list[tuple[Path, str]]) -> None:
    attributes = [name for name, value in vars(TableProperties).items() if isinstance(value, Property)]
    for file, name in logs:
        if name.endswith(".json"):
            for action in codec.decode(file.read_bytes()):
                if isinstance(action, Metadata):
                    properties = TableProperties.of(action)
                    assert all(hasattr(properties, attribute) for attribute in attributes)
