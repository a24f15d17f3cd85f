"""The page that maps `DeltaTable` to what there is here: it has every name, and what it says is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import lakeseal
from lakeseal.commands.merge.builder import MergeBuilder

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
# All public methods of delta.tables in delta-spark 4.4.
DELTA = [
    "addColumn",
    "addColumns",
    "addFeatureSupport",
    "alias",
    "clone",
    "cloneAtTimestamp",
    "cloneAtVersion",
    "clusterBy",
    "columnBuilder",
    "comment",
    "convertToDelta",
    "create",
    "createIfNotExists",
    "createOrReplace",
    "delete",
    "detail",
    "dropFeatureSupport",
    "execute",
    "executeCompaction",
    "executeZOrderBy",
    "forName",
    "forPath",
    "generate",
    "history",
    "isDeltaTable",
    "location",
    "merge",
    "optimize",
    "partitionedBy",
    "property",
    "replace",
    "restoreToTimestamp",
    "restoreToVersion",
    "tableName",
    "toDF",
    "update",
    "upgradeTableProtocol",
    "vacuum",
    "whenMatchedDelete",
    "whenMatchedUpdate",
    "whenMatchedUpdateAll",
    "whenNotMatchedBySourceDelete",
    "whenNotMatchedBySourceUpdate",
    "whenNotMatchedInsert",
    "whenNotMatchedInsertAll",
    "where",
    "withSchemaEvolution",
]


def rows() -> list[tuple[str, str]]:
    section = PAGE.read_text(encoding="utf-8").split("## For those who know `DeltaTable`")[1]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [(cells[0], cells[1]) for cells in lines[2:]]


def test_every_method_of_delta_table_has_its_line() -> None:
    theirs = " ".join(left for left, _ in rows())
    missing = [name for name in DELTA if not re.search(rf"\b{name}\b", theirs)]
    assert not missing


def test_what_the_page_names_is_there_with_the_arguments_that_it_names() -> None:
    places = (lakeseal.Table, MergeBuilder, lakeseal, lakeseal.Catalog)
    called = [call for _, right in rows() for call in re.findall(r"\b([a-z_]+)\(([^`]*?)\)", right)]
    assert len(called) > 40
    for name, written in called:
        found = [getattr(place, name) for place in places if hasattr(place, name)]
        assert found, name
        arguments = re.findall(r"(\w+)=", written)
        assert any(set(arguments) <= set(inspect.signature(one).parameters) for one in found), (name, arguments)
