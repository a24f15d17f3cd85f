"""`BranchMergeStep`: what a commit of a repository brings is merged into a branch.

The source is a commit, which never changes, and it has been merged when the branch's head descends from it. So whether
the step was done is read from the history itself, whatever has happened to the branch since. With `expected_head` the
merge is made only onto that head; without, onto whatever the head is. Two that merge at once race for the head by
merge-if, and the one that loses finds the step done.

Whoever stages the step keeps the commit from being collected, by its branch, until the sequence is finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from msgspec import field

from lakeseal.branches import embedded
from lakeseal.branches.embedded import config
from lakeseal.branches.store import BranchStore
from lakeseal.branches.values import MergeResult, Strategy
from lakeseal.errors import HeadChanged
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import Reach
from lakeseal.steps.step import CommitStep, register

_LAKEFS = "lakefs://"


@register
class BranchMergeStep(CommitStep, frozen=True, kw_only=True, tag="branch-merge"):
    repository: str
    """Its URI. Its heads are in the context's ledger, or in its own where it has one."""
    commit: str
    """The whole id of the commit to merge."""
    dest: str
    expected_head: str | None = None
    strategy: Strategy | None = None
    message: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, store: BranchStore, source: str, dest: str, *, only_onto_head: bool = False) -> BranchMergeStep:
        """With the commit that the ref `source` stands for now."""
        head = store.head(dest) if only_onto_head else None
        return cls(repository=store.uri, commit=store.head(source), dest=dest, expected_head=head)

    def verify(self, context: StepContext) -> bool:
        with opened(self.repository, context) as store:
            return self._is_merged(store, store.head(self.dest))

    def execute(self, context: StepContext) -> None:
        with opened(self.repository, context) as store:
            while True:
                head = store.head(self.dest)
                if self._is_merged(store, head):
                    return
                if self.expected_head not in (None, head):
                    raise HeadChanged(
                        f"The branch {self.dest!r} is not at {self.expected_head} any more, where it was to be merged",
                        table=store.uri,
                        hint="Abort the sequence, or merge by hand and retry it",
                    )
                outcome = store.merge_if(
                    self.commit,
                    self.dest,
                    head,
                    strategy=self.strategy,
                    message=self.message,
                    metadata=self.metadata,
                )
                if isinstance(outcome, MergeResult):
                    return

    def reaches(self) -> Reach:
        return Reach(repositories=(self.repository,))

    def describe(self) -> str:
        return f"merge {self.commit[:12]} into {self.dest} of {self.repository}"

    def _is_merged(self, store: BranchStore, head: str) -> bool:
        return store.merge_base(self.commit, head) == self.commit


@contextmanager
def opened(repository: str, context: StepContext) -> Iterator[BranchStore]:
    """The repository, with its heads in the context's ledger or in its own."""
    store: BranchStore
    if repository.startswith(_LAKEFS):
        # Its packages are an extra.
        store = import_module("lakeseal.branches.lakefs.store").open(
            repository, storage_options=context.spec(repository).storage_options
        )
    else:
        files = context.store(repository)
        is_ours = context.has_ledger and config.read(files).ledger == context.ledger.url.public
        store = embedded.open(repository, ledger=context.ledger if is_ours else None, store=files)
    try:
        yield store
    finally:
        store.close()
