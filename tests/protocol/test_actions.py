from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    BY_KEY,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    UnknownAction,
)

text = st.text(st.characters(codec="utf-8"), max_size=12)
longs = st.integers(-(2**63), 2**63 - 1)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | text
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)
string_maps = st.dictionaries(text, st.none() | text, max_size=3)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": text,
    "bool": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": longs,
    "map": string_maps,
    "names": st.lists(text, max_size=3),
    "any": json_values.filter(lambda value: value is not None),
}
DELETION_VECTOR = (
    {"storageType": "str", "pathOrInlineDv": "str", "sizeInBytes": "int", "cardinality": "long"},
    {"offset": "int"},
)
FIELDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "add": (
        {"path": "str", "partitionValues": "map", "size": "long", "modificationTime": "long", "dataChange": "bool"},
        {
            "stats": "str",
            "tags": "map",
            "deletionVector": "dv",
            "baseRowId": "long",
            "defaultRowCommitVersion": "long",
            "clusteringProvider": "str",
        },
    ),
    "remove": (
        {"path": "str", "dataChange": "bool"},
        {
            "deletionTimestamp": "long",
            "extendedFileMetadata": "bool",
            "partitionValues": "map",
            "size": "long",
            "stats": "str",
            "tags": "map",
            "deletionVector": "dv",
            "baseRowId": "long",
            "defaultRowCommitVersion": "long",
        },
    ),
    "cdc": ({"path": "str", "partitionValues": "map", "size": "long", "dataChange": "bool"}, {"tags": "map"}),
    "metaData": (
        {"id": "str", "format": "format", "partitionColumns": "names", "configuration": "map"},
        {"name": "str", "description": "str", "schemaString": "str", "createdTime": "long"},
    ),
    "protocol": (
        {"minReaderVersion": "long", "minWriterVersion": "long"},
        {"readerFeatures": "names", "writerFeatures": "names"},
    ),
    "txn": ({"appId": "str", "version": "long"}, {"lastUpdated": "long"}),
    "domainMetadata": ({"domain": "str", "configuration": "str", "removed": "bool"}, {}),
    "commitInfo": (
        {},
        {
            "timestamp": "any",
            "inCommitTimestamp": "long",
            "operation": "any",
            "operationParameters": "any",
            "readVersion": "any",
            "isolationLevel": "any",
            "isBlindAppend": "any",
            "operationMetrics": "any",
            "userMetadata": "any",
            "engineInfo": "any",
            "txnId": "str",
            "tags": "any",
        },
    ),
    "checkpointMetadata": ({"version": "long"}, {"tags": "map"}),
    "sidecar": ({"path": "str", "sizeInBytes": "long", "modificationTime": "long"}, {"tags": "map"}),
}


@st.composite
def objects(draw: st.DrawFn, required: dict[str, str], optional: dict[str, str]) -> dict[str, Any]:
    """An object with its required fields, some optional ones, and some that nobody knows, in any order."""
    chosen = [*required.items(), *(pair for pair in optional.items() if draw(st.booleans()))]
    value = {name: draw(of_type(kind)) for name, kind in chosen}
    unknown = draw(
        st.dictionaries(text.filter(lambda name: name not in {*required, *optional}), json_values, max_size=2)
    )
    pairs = draw(st.permutations([*value.items(), *unknown.items()]))
    return dict(pairs)


def of_type(kind: str) -> st.SearchStrategy[Any]:
    if kind == "dv":
        return objects(*DELETION_VECTOR)
    if kind == "format":
        return objects({"provider": "str", "options": "map"}, {})
    return BY_TYPE[kind]


known_actions = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda key: objects(*FIELDS[key]).map(lambda value: {key: value})
)
unknown_actions = st.tuples(
    text.filter(lambda name: name not in FIELDS), json_values.filter(lambda value: value is not None)
).map(lambda pair: {pair[0]: pair[1]})


@given(known_actions)
def test_from_json_and_to_json_are_inverse_with_unknown_fields_kept(line: dict[str, Any]) -> None:
    ((key, value),) = line.items()

    action = BY_KEY[key].from_json(value)

    assert action.to_json() == value
    assert BY_KEY[key].from_json(action.to_json()) == action


@given(st.lists(known_actions | unknown_actions, max_size=5))
def test_lines_survive_decoding_and_encoding(lines: list[dict[str, Any]]) -> None:
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)

    actions = codec.decode(data)

    assert [msgspec.json.decode(line) for line in codec.encode(actions).splitlines()] == lines
    assert codec.decode(codec.encode(actions)) == actions


def test_every_action_of_the_format_is_covered_by_the_round_trip() -> None:
    assert set(FIELDS) == set(BY_KEY)


ADD = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}


def test_null_fields_are_absent_and_never_written_as_null() -> None:
    action = AddFile.from_json({**ADD, "stats": None, "deletionVector": None, "tags": None})

    assert action == AddFile.from_json(ADD)
    assert action.to_json() == ADD


def test_a_deletion_vector_keeps_fields_that_are_not_known() -> None:
    descriptor = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 3, "cardinality": 4, "maxRowIndex": 5}

    action = AddFile.from_json({**ADD, "deletionVector": descriptor})

    assert action.deletion_vector is not None
    assert action.deletion_vector.unknown == {"maxRowIndex": 5}
    assert action.to_json()["deletionVector"] == descriptor


@pytest.mark.parametrize(("offset", "unique_id"), [(None, "uab"), (0, "uab@0"), (7, "uab@7")])
def test_the_id_of_a_deletion_vector_has_its_offset_only_if_there_is_one(offset: int | None, unique_id: str) -> None:
    descriptor = DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv="ab", offset=offset, size_in_bytes=3, cardinality=4
    )

    assert descriptor.unique_id == unique_id


def test_an_unknown_field_cannot_take_the_place_of_a_known_one() -> None:
    action = AddFile.from_json({**ADD, "lakeseal.unknown": {"path": "elsewhere"}})

    assert action.path == "a"
    assert action.to_json() == {**ADD, "lakeseal.unknown": {"path": "elsewhere"}}
    forged = msgspec.structs.replace(action, unknown={"path": "elsewhere"})
    assert forged.to_json()["path"] == "a"


def test_metadata_is_written_with_format_partition_columns_and_configuration_even_if_empty() -> None:
    assert Metadata(id="x").to_json() == {
        "id": "x",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": {},
    }


def test_a_format_without_options_has_none() -> None:
    value = {"id": "x", "format": {"provider": "parquet", "options": None}, "partitionColumns": []}
    assert Metadata.from_json(value).format == Format()


def test_a_false_removal_flag_is_written() -> None:
    assert DomainMetadata(domain="d", configuration="", removed=False).to_json()["removed"] is False


@pytest.mark.parametrize("size", [2**63, -(2**63) - 1, "1", 1.5, True, {}, []])
def test_a_size_that_is_not_a_64_bit_integer_is_refused(size: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        AddFile.from_json({**ADD, "size": size})


def test_actions_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Protocol(min_reader_version=1, min_writer_version=2).min_reader_version = 3  # type: ignore[misc]


def test_an_unknown_action_is_a_value() -> None:
    assert UnknownAction(name="x", value={"a": 1}) == UnknownAction(name="x", value={"a": 1})
