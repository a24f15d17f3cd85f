"""Options that would do nothing beside what else is said are refused by their names, and not passed over.

What belongs to one value (a source, a target, a rule) its own class refuses by `refuse_idle`; here is what a dataset's
parts say of each other. An option is told from one that was not given by its default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument

if TYPE_CHECKING:
    from lakeseal.ingest.config import Dataset


def refuse_idle(options: Struct, names: Iterable[str], why: str, hint: str = "Leave it out") -> None:
    """`why` goes on behind `X says nothing`."""
    for name in given(options, names):
        raise InvalidArgument(f"{name} says nothing {why}", hint=hint)


def given(options: Struct, names: Iterable[str]) -> list[str]:
    """Those of these options that are not as they are by default."""
    wanted = set(names)
    return [
        field.name
        for field in msgspec.structs.fields(type(options))
        if field.name in wanted and getattr(options, field.name) != _default(field)
    ]


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def check(dataset: Dataset) -> None:
    """Raises for the first option of the dataset that its source or its target leaves without a meaning."""
    source, target = dataset.source, dataset.target
    kind = type(source).__struct_config__.tag
    keeps_bad = dataset.on_bad_record == "error_table" and source.has_records
    if dataset.commit not in source.commit_policies:
        raise InvalidArgument(
            f"commit: {dataset.commit} says nothing of a source of type {kind} that is read like this",
            hint=f"Use {' or '.join(source.commit_policies)}",
        )
    is_keyed = len(dataset.rules) > len(dataset.quality)
    if not source.has_records and not is_keyed:
        refuse_idle(dataset, ["on_bad_record"], f"of a source of type {kind}: none of its rows is a bad record")
    if not source.is_asked:
        refuse_idle(dataset, ["timeout_seconds"], f"of a source of type {kind}: nobody is waited for")
    if not keeps_bad and all(rule.on_fail != "error_table" for rule in dataset.rules):
        refuse_idle(
            dataset,
            ["error_table"],
            "where nothing goes to the error table",
            "Say on_bad_record: error_table, or on_fail: error_table of a rule; or leave it out",
        )
    target_kind = type(target).__struct_config__.tag
    if target_kind != "table" and any(rule.schema is not None for rule in dataset.quality):
        raise InvalidArgument(
            f"A rule about the schema says nothing of a target of type {target_kind}",
            hint="Leave it out: there is no table to compare with",
        )
    source.check_target(getattr(target, "mode", "append"))
