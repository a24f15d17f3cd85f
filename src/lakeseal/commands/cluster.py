"""CLUSTER BY: by which columns a table's rows are to be kept near each other from now on.

No file changes: `optimize` lays out what is not clustered so. None of the columns' names, and the table is no longer
clustered; files stay as they are.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commit.clustering import CLUSTERING_DOMAIN, clustered_by, domain_for
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import TableNotFound
from lakeseal.protocol.features import enable


class ClusterCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    columns: tuple[str, ...]

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        before = clustered_by(snapshot)
        set_clustering(txn, self.columns)
        operation = Operation(
            name="CLUSTER BY",
            parameters={"oldClusteringColumns": ",".join(before), "newClusteringColumns": ",".join(self.columns)},
        )
        return PlannedChange(finish=lambda _: ([], operation))


def set_clustering(txn: OptimisticTransaction, columns: tuple[str, ...]) -> None:
    """By the transaction's metadata as it is now."""
    domain = domain_for(txn.metadata, columns)
    txn.update_protocol(enable(txn.protocol, "clustering"))
    txn.set_domain(CLUSTERING_DOMAIN, domain)
