from __future__ import annotations

import pickle

import pytest

from lakeseal import errors

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.LakesealError)]
GROUPS = {
    "AlreadyExists",
    "ConcurrentModification",
    "CorruptTable",
    "InvalidInput",
    "NotFound",
    "Refused",
    "StorageError",
    "Unsupported",
}


def test_the_groups_are_the_ones_that_handlers_were_promised() -> None:
    assert {cls.__name__ for cls in errors.LakesealError.__subclasses__()} == GROUPS


def test_kinds_are_unique_because_programs_tell_errors_apart_by_them() -> None:
    kinds = [error.kind for error in TREE]
    assert len(set(kinds)) == len(kinds)


def test_the_tree_in_the_docstring_names_every_error_but_deltas_own() -> None:
    drawn = errors.__doc__ or ""
    missing = [
        error.__name__ for error in TREE if error.__name__ not in drawn and not error.__name__.endswith("Exception")
    ]
    assert missing == []


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.kind)
def test_an_error_keeps_its_parts_when_it_crosses_a_process_border(error: type[errors.LakesealError]) -> None:
    sent = error("it broke", hint="mend it", table="t", version=3, file="f", column="c")

    got = pickle.loads(pickle.dumps(sent))

    assert type(got) is error
    assert str(got) == str(sent) == "it broke (table t, version 3, file f, column c). mend it"
    assert got.to_json() == {
        "kind": error.kind,
        "message": "it broke",
        "hint": "mend it",
        "table": "t",
        "version": 3,
        "file": "f",
        "column": "c",
    }
