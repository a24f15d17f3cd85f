"""What must be so before a commit is ratified: its content is what it says, and policies agree.

An owner that does not trust its clients, and any owner where a policy holds, decodes each commit whole, once, and
decides on what it then holds (`validation`, `policies`): there are many ways to write one thing in JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import cache

import msgspec

from lakeseal.clock import Clock
from lakeseal.errors import InvalidArgument, LakesealError, located
from lakeseal.log.ratified_commit import digest
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner import enablement, policies, validation
from lakeseal.owner.backfill import check_log_is_there
from lakeseal.owner.content import Content
from lakeseal.owner.kinds import Kind, kind_of
from lakeseal.owner.messages import CommitRequest
from lakeseal.owner.policies import Policy, ProposedCommit
from lakeseal.protocol.actions import Action, Metadata
from lakeseal.protocol.codec import decode_numbered
from lakeseal.protocol.properties import TableProperties
from lakeseal.storage import Store, is_below, prefix_of

_LET_GO_AT_ONCE = 1000
_log = logging.getLogger(__name__)


class Admission:
    def __init__(
        self,
        *,
        owner: str,
        policies: Sequence[Policy],
        trusting: bool,
        snapshot_at: Callable[[str, int], Snapshot],
        clock: Clock,
        identity: Callable[[], str | None],
    ) -> None:
        """`trusting`: whoever asks is this process or another of the same user, so a file that is there need not be
        read again when no policy asks for it."""
        self._owner = owner
        self.policies = [(prefix_of(policy.tables), policy) for policy in policies]
        """Each with the tables that it holds for, in the one spelling that tables are known by."""
        self.trusting = trusting
        self._snapshot_at = snapshot_at
        self._clock = clock
        self._identity = identity

    def check(self, request: CommitRequest, store: Store, *, principal: str | None) -> CommitRequest:
        """The request, bound to the very bytes that were looked at."""
        applying = self._applying(request.table)
        with located(table=request.table, version=request.version, file=request.key):
            data = request.data
            if data is None:
                data = self._read(request, store, needed=bool(applying))
                if data is None:
                    return request
            content = self._check(request, data, applying, principal, self._before(request))
            return msgspec.structs.replace(request, sha256=digest(data), changes_metadata=content.changes_metadata)

    def check_at_once(self, request: CommitRequest, *, principal: str | None) -> CommitRequest | None:
        """As `check`, where the request's own bytes are all that has to be looked at. None where it takes more, or
        where something is wrong with it: `check` says what."""
        if request.data is None or self._applying(request.table):
            return None
        try:
            content = self._check(request, request.data, (), principal, _look_at_table)
        except (LakesealError, _LooksAtTable):
            return None
        return msgspec.structs.replace(request, sha256=digest(request.data), changes_metadata=content.changes_metadata)

    def check_principal(self, table: str, principal: str | None, doing: policies.Doing) -> None:
        policies.check_principal(self._applying(table), table=table, principal=principal, doing=doing)

    def tell_of_idle_policies(self, coming: str, known: Callable[[], Collection[str]]) -> None:
        """A policy for tables that are not there may be for others than somebody thinks: among those that are `known`,
        and the one that is about to come."""
        named = [(prefix, policy) for prefix, policy in self.policies if prefix and not is_below(coming, prefix)]
        there = known() if named else ()
        for prefix, policy in named:
            if not any(is_below(table, prefix) for table in there):
                _log.warning("the policy %s for %s holds for no table of the owner yet", policy.name, prefix)

    def _applying(self, table: str) -> list[Policy]:
        return [policy for prefix, policy in self.policies if is_below(table, prefix)]

    def _read(self, request: CommitRequest, store: Store, *, needed: bool) -> bytes | None:
        if request.version > 0:
            check_log_is_there(store, strictly=True)
        if self.trusting and not needed and request.sha256 is not None:
            _same(store.head(request.key).size == request.size, "another size")
            return None
        data = store.get(request.key)
        _same(len(data) == request.size, "another size")
        return data

    def _before(self, request: CommitRequest) -> Callable[[], Snapshot | None]:
        """The table that the commit is made to; looked at once, if it is asked for."""
        return cache(lambda: self._snapshot_at(request.table, request.version - 1) if request.version > 0 else None)

    def _check(
        self,
        request: CommitRequest,
        data: bytes,
        applying: Sequence[Policy],
        principal: str | None,
        before: Callable[[], Snapshot | None],
    ) -> Content:
        if self.trusting and not applying:
            content = Content.of(data)
            self._check_content(request, content, before)
            return content
        lines = decode_numbered(data)
        try:
            return self._check_lines(request, data, lines, applying, principal, before)
        finally:
            _let_go(lines)

    def _check_lines(
        self,
        request: CommitRequest,
        data: bytes,
        lines: list[tuple[int, Action]],
        applying: Sequence[Policy],
        principal: str | None,
        before: Callable[[], Snapshot | None],
    ) -> Content:
        validation.check_form(lines)
        actions = [action for _, action in lines]
        content = Content.of_actions(actions)
        self._check_content(request, content, before)
        if not self.trusting:
            validation.check_safe(lines, now=self._clock(), before=before)
        if applying:
            proposed = ProposedCommit(
                table=request.table,
                version=request.version,
                principal=principal,
                data=data,
                actions=actions,
                before=before,
            )
            policies.check_commit(applying, proposed)
        return content

    def _check_content(self, request: CommitRequest, content: Content, before: Callable[[], Snapshot | None]) -> None:
        info = content.info
        if info is None or (info.txn_id, info.in_commit_timestamp) != (request.txn_id, request.in_commit_timestamp):
            raise InvalidArgument(
                "The commit's commitInfo does not carry the txnId and the inCommitTimestamp that it is asked for with"
            )
        if content.changes_metadata:
            self._check_ownership(request, content, before)

    def _check_ownership(self, request: CommitRequest, content: Content, before: Callable[[], Snapshot | None]) -> None:
        def known() -> Metadata | None:
            """Of the table until now; that of a new one is its own."""
            found = before()
            return content.metadata if found is None else found.metadata

        enablement.check_commit(
            content,
            owner=self._owner,
            table=request.table,
            version=request.version,
            kind=lambda: (None if (found := known()) is None else kind_of(found)) or Kind.MANAGED,
            table_id=lambda: None if (found := known()) is None else TableProperties.of(found).catalog_table_id,
            ledger=self._identity,
        )


class _LooksAtTable(Exception):
    pass


def _look_at_table() -> Snapshot | None:
    raise _LooksAtTable


def _let_go(lines: list[tuple[int, Action]]) -> None:
    """Bit by bit: 100,000 actions at once would be 40 ms in which no other thread runs."""
    while lines:
        del lines[-_LET_GO_AT_ONCE:]


def _same(same: bool, difference: str) -> None:
    if not same:
        raise InvalidArgument(f"The commit's file is there with {difference}", hint="Use a new UUID for each commit")
