"""DROP FEATURE: a table asks less of those who write it.

A feature goes only where nothing of the table uses it. Readers of older versions still need one that is for readers and
leaves traces in files (`feature_traces`), so the log before has to go first.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Struct

from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commit.clustering import CLUSTERING_DOMAIN, clustered_by
from lakeseal.commit.proposal import Operation
from lakeseal.errors import InvalidArgument, TableNotFound, UnsupportedFeature
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.feature_list import Feature, FeatureUse
from lakeseal.protocol.features import drop, named
from lakeseal.protocol.properties import TableProperties

_OWNED = ("managedCommits", "catalogManaged", "coordinatedCommits-preview")
_CLOCK = (
    TableProperties.in_commit_timestamps.key,
    TableProperties.in_commit_timestamp_enablement_version.key,
    TableProperties.in_commit_timestamp_enablement_timestamp.key,
)
_FIRST = {
    "appendOnly": "Unset delta.appendOnly first",
    "changeDataFeed": "Unset delta.enableChangeDataFeed first",
    "checkConstraints": "Drop the constraints first: Table.drop_constraint(…)",
    "invariants": "Allow nulls in all columns first: Table.drop_not_null(…)",
    "generatedColumns": "Columns that are generated need it; make the table anew without them",
    "identityColumns": "Identity columns need it; make the table anew without them",
    "allowColumnDefaults": "Drop the defaults first: Table.drop_default(…)",
}


class DropFeatureCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    name: str
    is_forgotten: bool = False
    """Whether no version that is left in the log needs it."""

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        feature = named(self.name)
        protocol = drop(snapshot.protocol, feature.name, is_forgotten=self.is_forgotten)
        self._check(feature, snapshot)
        if feature.name == "inCommitTimestamp":
            txn.update_metadata(_without_clock(snapshot.metadata))
        if feature.name == "clustering":
            txn.remove_domain(CLUSTERING_DOMAIN)
        txn.update_protocol(protocol)
        operation = Operation(name="DROP FEATURE", parameters={"featureName": feature.name})
        return PlannedChange(finish=lambda _: ([], operation))

    def _check(self, feature: Feature, snapshot: Snapshot) -> None:
        """That nothing uses it, as far as that cannot be changed along the way."""
        name = feature.name
        if name in _OWNED:
            raise InvalidArgument(f"The feature {name} goes with the table's owner", hint="Table.release()")
        if name == "rowTracking":
            raise UnsupportedFeature(
                "Row tracking is not dropped: files that are there have row ids",
                hint="Suspend it: delta.enableRowTracking=false and delta.rowTrackingSuspended=true",
            )
        if name == "clustering" and clustered_by(snapshot):
            raise InvalidArgument("The table is clustered", hint="Table.cluster_by(None) first")
        domains = [domain for domain in snapshot.domains.values() if not domain.removed]
        if name == "domainMetadata" and domains:
            raise InvalidArgument(f"The table has the metadata domain {domains[0].domain}, which needs {name}")
        if name == "inCommitTimestamp":
            return
        if feature.in_use is not None and feature.in_use(FeatureUse.of(snapshot.metadata)):
            raise InvalidArgument(f"The table uses the feature {name}", hint=_FIRST.get(name, feature.hint) or None)


def _without_clock(metadata: Metadata) -> Metadata:
    kept = {key: value for key, value in metadata.configuration.items() if key not in _CLOCK}
    return msgspec.structs.replace(metadata, configuration=kept)
