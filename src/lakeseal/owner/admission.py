"""What must be so before a commit is ratified: the content is what it says, policies agree, the file is there.

`Gate.check` looks at the content; `place` returns when the commit's file is in `_commits` with that content: durable,
unless the ledger is about to keep the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakeseal.errors import InvalidArgument, located
from lakeseal.owner import enablement, policies
from lakeseal.owner.enablement import Content
from lakeseal.owner.messages import CommitRequest
from lakeseal.owner.policies import Policy, ProposedCommit
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.codec import decode
from lakeseal.storage.base import Store


class Gate:
    def __init__(
        self,
        *,
        owner: str,
        policies: Sequence[Policy],
        trusting: bool,
        metadata_at: Callable[[str, int], Metadata],
    ) -> None:
        """`trusting`: whoever asks is this process or another of the same user, so a file that is there need not be
        read again when no policy asks for it."""
        self._owner = owner
        self._policies = tuple(policies)
        self._trusting = trusting
        self._metadata_at = metadata_at

    def is_quick(self, request: CommitRequest) -> bool:
        """Whether `check` looks at nothing but the request."""
        return request.data is not None and not self._applying(request.table)

    def check(self, request: CommitRequest, store: Store, *, principal: str | None) -> None:
        applying = self._applying(request.table)
        with located(table=request.table, version=request.version, file=request.key):
            data = request.data
            if data is None:
                data = self._read(request, store, needed=bool(applying))
            if data is not None:
                self._check(request, data, applying, principal)

    def place(self, request: CommitRequest, store: Store) -> None:
        """Writes the file of a small commit; that of a large one is there, as `check` has seen."""
        if request.data is None:
            return
        # The ledger's row carries the bytes too, and is durable: a file that a power cut takes is put back from there.
        # (Asked for by name: a look at the whole protocol takes longer than the file.)
        put = getattr(store, "place", store.put_if_absent)
        if not put(request.key, request.data):
            # The request came twice, or the name was not as random as it should be.
            with located(table=request.table, version=request.version, file=request.key):
                _same(store.get(request.key) == request.data, "other content")

    def check_principal(self, table: str, principal: str | None, doing: policies.Doing) -> None:
        policies.check_principal(self._policies, table=table, principal=principal, doing=doing)

    def _applying(self, table: str) -> list[Policy]:
        return [policy for policy in self._policies if policies.is_below(table, policy.tables)]

    def _read(self, request: CommitRequest, store: Store, *, needed: bool) -> bytes | None:
        if self._trusting and not needed:
            _same(store.head(request.key).size == request.size, "another size")
            return None
        data = store.get(request.key)
        _same(len(data) == request.size, "another size")
        return data

    def _check(self, request: CommitRequest, data: bytes, applying: Sequence[Policy], principal: str | None) -> None:
        content = Content.of(data) if self._trusting else Content.of_actions(decode(data))
        info = content.info
        if info is None or (info.txn_id, info.in_commit_timestamp) != (request.txn_id, request.in_commit_timestamp):
            raise InvalidArgument(
                "The commit's commitInfo does not carry the txnId and the inCommitTimestamp that it is asked for with"
            )
        enablement.check_commit(content, owner=self._owner, table=request.table, version=request.version)
        if applying:
            proposed = ProposedCommit(
                table=request.table,
                version=request.version,
                principal=principal,
                data=data,
                before=lambda: self._metadata_at(request.table, request.version - 1),
            )
            policies.check_commit(applying, proposed)


def _same(same: bool, difference: str) -> None:
    if not same:
        raise InvalidArgument(f"The commit's file is there with {difference}", hint="Use a new UUID for each commit")
