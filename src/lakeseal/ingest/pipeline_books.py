"""`PipelineBooks`: what a ledger knows of a pipeline. Its name and its ledger are all that it takes to ask.

So its sources need not be reachable, and the variables that only they use need not be set. A run that is recorded as
running, and has no turn any more, has died: the next one will say so, and until then it is said here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from lakeseal.ingest.runs import RunResult
from lakeseal.ingest.turn import is_at_work
from lakeseal.ingest.yaml_file import Given, read_head
from lakeseal.owner.connect import connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.steps.books import Books, books_of
from lakeseal.steps.runs import RUNNING
from lakeseal.steps.watermarks import Watermark


class PipelineBooks:
    def __init__(self, name: str, ledger: str, token: str | None = None) -> None:
        self.name, self._ledger, self._token = name, ledger, token

    @classmethod
    def from_yaml(
        cls, path: str | os.PathLike[str], *, env: str | None = None, params: Mapping[str, str] | None = None
    ) -> PipelineBooks:
        head = read_head(path, Given(env=env, params=params or {}))
        return cls(head.name, head.ledger, head.token)

    def history(self, limit: int = 20) -> list[RunResult]:
        """Runs, newest first."""
        books = self.books()
        return [self._told(books, RunResult.from_record(one)) for one in books.runs.history(self.name, limit)]

    def watermarks(self, dataset: str | None = None) -> list[Watermark]:
        books = self.books()
        return books.watermarks.of_pipeline(self.name, dataset)

    def open_sequences(self) -> Mapping[str, str]:
        """Datasets with steps that are not finished: their state, and the reason if they were set aside."""
        books = self.books()
        found = books.sequences.statuses(self.name)
        return {one.dataset: f"{one.state.value}: {one.reason}" if one.reason else one.state.value for one in found}

    def books(self) -> Books:
        """To be kept while they are used."""
        return books_of(owner_of(self._ledger, self._token))

    def _told(self, books: Books, run: RunResult) -> RunResult:
        if run.state != RUNNING or is_at_work(books.leases, self.name, run.run_id):
            return run
        return replace(run, state="died")


def owner_of(ledger: str, token: str | None) -> OwnerEndpoint:
    # Each commit is put into the log at once: a run makes few, and readers that know no owner see them then. A service
    # has a batch size of its own.
    return connect(ledger, batch_size=1, token=token)
