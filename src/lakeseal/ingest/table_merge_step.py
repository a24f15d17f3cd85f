"""`TableMergeStep`: rows that wait in a table of their own change a target that the ledger does not own.

Unlike a commit whose files were staged (`TableCommitStep`), it is worked out when it is done, against the table as it
is then: whoever else has changed the table in between is seen, and nothing has to be aborted. It may be done any number
of times, for each of its tables a number under the dataset's application id says whether it was; a merge that changes
nothing leaves no trace and changes nothing again.

The rows stay below the target, in staging, until the sequence is finished.
"""

from __future__ import annotations

from lakeseal.backoff import Backoff
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import ConcurrentModification, TableNotFound
from lakeseal.ingest.merging import ChangingTable, TargetMerging, apply
from lakeseal.owner.routing import Route, Router
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import Reach
from lakeseal.steps.step import CommitStep, register
from lakeseal.table import HOOKS

_TRIES = 10
_BACKOFF = Backoff(first_s=0.05)


@register
class TableMergeStep(CommitStep, frozen=True, kw_only=True, tag="table-merge"):
    merging: TargetMerging
    app_id: str
    app_version: int

    def verify(self, context: StepContext) -> bool:
        return all(self._is_in(Router(context.store(uri), context.owners)) for uri in self.merging.tables)

    def execute(self, context: StepContext) -> None:
        routers = [Router(context.store(uri), context.owners) for uri in self.merging.tables]
        for tried in _BACKOFF.tries():
            try:
                self._apply(context, routers, [])
            except ConcurrentModification:
                # Somebody else has changed what the merge read.
                if tried >= _TRIES:
                    raise
            else:
                return

    def reaches(self) -> Reach:
        return Reach(tables=self.merging.tables, staging=((self.merging.waiting, ""),))

    def describe(self) -> str:
        return f"{self.merging.mode} the rows in {self.merging.waiting} into {self.merging.target}"

    def _apply(self, context: StepContext, routers: list[Router], routes: list[Route]) -> None:
        if len(routes) < len(routers):
            routers[len(routes)].run(lambda route: self._apply(context, routers, [*routes, route]))
            return
        parts = [self._part(context, uri, route) for uri, route in zip(self.merging.tables, routes, strict=True)]
        waiting = context.spec(self.merging.waiting)
        apply(self.merging, waiting, parts[0], parts[1] if len(parts) > 1 else None)

    def _part(self, context: StepContext, uri: str, route: Route) -> ChangingTable:
        txn = OptimisticTransaction.begin(route.log, route.owner, hooks=HOOKS)
        if txn.snapshot is None:
            raise TableNotFound("There is no table here any more", table=uri)
        is_done = txn.set_transaction(self.app_id, self.app_version) is not None
        return ChangingTable(txn=txn, store=context.spec(uri), is_done=is_done)

    def _is_in(self, router: Router) -> bool:
        snapshot = router.snapshot()
        if snapshot is None:
            return False
        seen = snapshot.txns.get(self.app_id)
        return seen is not None and seen.version >= self.app_version
