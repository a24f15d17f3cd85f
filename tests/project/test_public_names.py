from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import get_args

import lakeseal

NAMES = [
    "Catalog",
    "Identity",
    "LakesealError",
    "Pipeline",
    "Repository",
    "Table",
    "Trust",
    "convert",
    "create",
    "is_delta_table",
    "register",
    "snapshots",
    "sql",
    "transaction",
]
TABLE = [
    "add_columns",
    "add_constraint",
    "add_feature",
    "change_type",
    "changes",
    "changes_spark",
    "checkpoint",
    "cleanup",
    "clone",
    "cluster_by",
    "commits",
    "compact_log",
    "delete",
    "detail",
    "drop_column",
    "drop_columns",
    "drop_constraint",
    "drop_default",
    "drop_feature",
    "drop_not_null",
    "exists",
    "files",
    "generate",
    "history",
    "merge",
    "move_column",
    "name",
    "optimize",
    "place",
    "purge",
    "release",
    "rename_column",
    "restore",
    "schema",
    "set_comment",
    "set_default",
    "set_not_null",
    "set_properties",
    "snapshot",
    "sync_identity",
    "take_over",
    "to_arrow",
    "to_batches",
    "to_duckdb",
    "to_pandas",
    "to_polars",
    "to_spark",
    "update",
    "upgrade",
    "uri",
    "vacuum",
    "version",
    "write",
]

REPOSITORY = [
    "branches",
    "cherry_pick",
    "create",
    "create_branch",
    "delete_branch",
    "delete_tag",
    "diff",
    "export",
    "gc",
    "jobs",
    "list",
    "log",
    "merge",
    "open",
    "protect",
    "put",
    "read",
    "reset",
    "revert",
    "stat",
    "tag",
    "tags",
    "to_arrow",
    "to_batches",
    "to_spark",
    "uri",
    "write",
]


def test_the_package_offers_exactly_these_names() -> None:
    assert sorted(lakeseal.__all__) == NAMES
    assert set(NAMES) <= set(dir(lakeseal))


def test_a_table_offers_exactly_these_names() -> None:
    assert [name for name, _ in inspect.getmembers(lakeseal.Table) if not name.startswith("_")] == TABLE


def test_a_repository_offers_exactly_these_names() -> None:
    assert [name for name, _ in inspect.getmembers(lakeseal.Repository) if not name.startswith("_")] == REPOSITORY


def test_a_table_does_not_import_pyspark_because_it_is_an_extra() -> None:
    code = "import sys, lakeseal; lakeseal.Table; print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_editors_know_the_words_of_every_mode() -> None:
    told = {}
    for cls in (lakeseal.Table, lakeseal.Catalog, lakeseal.Repository, lakeseal.Pipeline):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            module = vars(inspect.getmodule(method))
            for one in inspect.signature(method).parameters.values():
                if not name.startswith("_") and one.name in ("mode", "partition_overwrite", "strategy"):
                    parts = get_args(eval(one.annotation, module)) or ("no words",)
                    told[f"{cls.__name__}.{name} {one.name}"] = [get_args(part) or part for part in parts]
    assert told["Table.write mode"] == ["append", "overwrite", "error", "ignore"]
    assert len(told) > 5
    assert [name for name, words in told.items() if str in words or "no words" in words] == []


def test_the_package_knows_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", lakeseal.__version__)
