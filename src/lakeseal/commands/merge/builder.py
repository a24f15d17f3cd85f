"""`MergeBuilder`: a MERGE said clause by clause, and then done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from lakeseal.commands.command import NothingToDo
from lakeseal.commands.merge.clauses import Action, Clause, Kind, MergeCommand
from lakeseal.commit.transaction import CommitResult
from lakeseal.errors import InvalidArgument

Values = Mapping[str, Any] | Literal["*"]
Run = Callable[[MergeCommand], CommitResult | NothingToDo]


class MergeBuilder:
    """What `Table.merge` gives. Every method gives a new builder; nothing happens before `execute`.

    Columns of the table are `t.…` or `target.…`, those of the source `s.…` or `source.…`, in conditions and in values,
    unless they were given other names.
    Values are SQL texts or constants by column; "*" takes all columns from the source by name.
    """

    def __init__(
        self, run: Run, on: str, *, merge_schema: bool, user_metadata: str | None, **names: str | None
    ) -> None:
        self._run = run
        self._on = on
        self._clauses: tuple[Clause, ...] = ()
        self._options: dict[str, Any] = {"merge_schema": merge_schema, "user_metadata": user_metadata}
        for side in ("source", "target"):
            name = names.get(f"{side}_alias")
            if name is not None:
                self._options[f"{side}_names"] = (name,)

    def when_matched_update(self, set: Values = "*", condition: str | None = None) -> MergeBuilder:
        """Rows that match, and for which the condition holds, get these values.

        >>> merge.when_matched_update({"price": "s.price"}, "s.price > t.price").execute().version
        2
        """
        return self._with("matched", "update", condition, set)

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Rows that match, and for which the condition holds, go.

        >>> merge.when_matched_delete().execute().metrics["numTargetRowsDeleted"]
        1
        """
        return self._with("matched", "delete", condition)

    def when_not_matched_insert(self, values: Values = "*", condition: str | None = None) -> MergeBuilder:
        """Rows that only the source has come in.

        >>> merge.when_not_matched_insert().execute().metrics["numTargetRowsInserted"]
        1
        """
        return self._with("not_matched", "insert", condition, values)

    def when_not_matched_by_source_update(self, set: Mapping[str, Any], condition: str | None = None) -> MergeBuilder:
        """Rows that only the table has get these values.

        >>> merge.when_not_matched_by_source_update({"price": 0}).execute().metrics["numTargetRowsUpdated"]
        2
        """
        return self._with("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Rows that only the table has go.

        >>> merge.when_not_matched_by_source_delete("t.shop = 'north'").execute().metrics['numTargetRowsDeleted']
        1
        """
        return self._with("not_matched_by_source", "delete", condition)

    def with_clauses(self, *clauses: Clause) -> MergeBuilder:
        """Clauses that were made elsewhere, behind those that are there.

        >>> merge.with_clauses(*merge.when_matched_delete().command.clauses).execute().version
        2
        """
        made = MergeBuilder.__new__(MergeBuilder)
        made.__dict__.update(self.__dict__)
        made._clauses = (*self._clauses, *clauses)
        return made

    @property
    def command(self) -> MergeCommand:
        """What `execute` would do, as a value.

        >>> len(merge.when_matched_delete().command.clauses)
        1
        """
        return MergeCommand(on=self._on, clauses=self._clauses, **self._options)

    def execute(self) -> CommitResult | NothingToDo:
        """One transaction.

        >>> merge.when_matched_update().when_not_matched_insert().execute().version
        2
        """
        return self._run(self.command)

    def _with(self, kind: Kind, action: Action, condition: str | None, values: Values | None = None) -> MergeBuilder:
        if isinstance(values, str) and (values != "*" or kind == "not_matched_by_source"):
            raise InvalidArgument(f"{values!r} says nothing about columns", hint="Give a dict of columns and values")
        given = None if values is None or isinstance(values, str) else dict(values)
        return self.with_clauses(Clause(kind=kind, action=action, condition=condition, values=given))
