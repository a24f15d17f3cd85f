from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contracts.branch_contract import content
from lakeseal.branches.checks import (
    AllowedPaths,
    FileNames,
    MaxChanges,
    MaxRemoved,
    RequiredMetadata,
    RowsSatisfy,
    Rule,
    rule_to_json,
    rules_from_json,
)
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.values import Changes
from lakeseal.errors import CheckRefused, InvalidArgument, InvalidExpression


def parquet(**columns: list[object]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.fixture
def proposed(repo: EmbeddedBranchStore) -> EmbeddedBranchStore:
    for n in range(4):
        repo.put("main", f"old/{n}.csv", b"x")
    repo.create_branch("exp")
    repo.commit("exp", Changes(deletes=("old/0.csv", "old/1.csv")))
    repo.put("exp", "new/a.parquet", parquet(amount=[1, 2, 3], name=["a", "b", None]))
    repo.put("exp", "new/b.txt", b"no Parquet")
    repo.put("exp", "old/2.csv", b"changed", metadata={"owner": "me"})
    return repo


@pytest.mark.parametrize(
    "rule",
    [
        MaxRemoved(limit=2),
        MaxRemoved(limit=0, directory="new"),
        MaxChanges(limit=5),
        MaxChanges(limit=2, directory="new/"),
        RequiredMetadata(keys=("owner",)),
        RequiredMetadata(keys=("owner", "ticket")),
        AllowedPaths(directories=("new", "old/")),
        FileNames(patterns=("*.parquet", "*.txt")),
        RowsSatisfy(sql="amount > 0"),
        RowsSatisfy(sql="amount > 100", directory="old"),
    ],
    ids=lambda rule: f"{rule.name} {rule.directory}",
)
def test_a_merge_within_the_rules_goes_through(proposed: EmbeddedBranchStore, rule: Rule) -> None:
    proposed.merge("exp", "main", checks=[rule], metadata={"ticket": "1"})

    assert len(content(proposed, "main")) == 4


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (MaxRemoved(limit=1), "removes 2 files, and 1 are allowed"),
        (MaxChanges(limit=4), "changes 5 files"),
        (RequiredMetadata(keys=("owner", "ticket")), "lack ticket"),
        (AllowedPaths(directories=("new",)), r"changes old/0\.csv"),
        (AllowedPaths(directories=()), r"changes new/a\.parquet"),
        (FileNames(patterns=("*.parquet",)), r"adds new/b\.txt"),
        (RowsSatisfy(sql="amount > 1"), r"1 rows of new/a\.parquet"),
        (RowsSatisfy(sql="name <> 'x'"), r"1 rows of new/a\.parquet"),
        (RowsSatisfy(sql="no_such_column > 1"), "no_such_column"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_merge_against_a_rule_is_refused_and_changes_nothing(
    proposed: EmbeddedBranchStore, rule: Rule, reason: str
) -> None:
    head = proposed.head("main")

    with pytest.raises(CheckRefused, match=reason) as caught:
        proposed.merge("exp", "main", checks=[rule])

    assert caught.value.check == rule.name
    assert caught.value.to_json()["check"] == rule.name
    assert proposed.head("main") == head


def test_rules_go_to_json_and_back() -> None:
    rules = (
        MaxRemoved(limit=1),
        MaxChanges(limit=1, directory="é"),
        RequiredMetadata(keys=("a",)),
        AllowedPaths(directories=("a", "b")),
        FileNames(patterns=("*",)),
        RowsSatisfy(sql="a > 1"),
    )
    assert rules_from_json([rule_to_json(rule) for rule in rules]) == rules
    for wrong in ({"rule": "none"}, {"rule": "max-removed"}, {"rule": "max-removed", "limit": "x"}, {}):
        with pytest.raises(InvalidArgument):
            rules_from_json([wrong])
    with pytest.raises(InvalidExpression):
        RowsSatisfy(sql="a >")


def test_a_check_must_answer_with_words_or_nothing(proposed: EmbeddedBranchStore) -> None:
    wrong: object = True
    with pytest.raises(CheckRefused, match="neither None nor a reason"):
        proposed.merge("exp", "main", checks=[lambda proposal: wrong])  # type: ignore[list-item, return-value]
