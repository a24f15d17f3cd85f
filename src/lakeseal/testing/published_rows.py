"""A dataset whose rows are numbers: task output and job output in directories, watermarks in a ledger."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lakeseal.ledger import Ledger
from lakeseal.steps import CommitSequence, CommitStep, CommitStepStore, StepContext, Turn, register
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, checksum
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.watermarks import WatermarkChange, Watermarks
from lakeseal.storage import Store, open_store

PIPELINE = "clicks"
STORE = "clicks"
URN = "urn:events"


class World:
    """Rows are lines in files; the watermark of partition "0" is how many rows have been published."""

    def __init__(self, root: Path, ledger: Ledger, steps: CommitStepStore | None = None) -> None:
        self.root = root
        self.ledger = ledger
        self.steps: CommitStepStore = LedgerStepStore(ledger) if steps is None else steps
        self.marks = Watermarks(ledger)
        self.files = open_store(root / "data")

    def context(self, epoch: int | None = None, **options: object) -> StepContext:
        turn = None if epoch is None else Turn(name=PIPELINE, epoch=epoch)
        return StepContext(ledger=self.ledger, owners={}, turn=turn, **options)  # type: ignore[arg-type]

    def stage(self, first: int, rows: int, *, files: int = 3, run: str = "run-1", dataset: str = URN) -> CommitSequence:
        """Task output with rows from `first` on, and the sequence that publishes it."""
        return stage(self.files, first, rows, files=files, run=run, dataset=dataset)

    def published(self, dataset: str = URN) -> list[int]:
        return rows_in(self.files, f"job-output/{dataset}/")

    def watermark(self, dataset: str = URN) -> int:
        return int(self.marks.read(PIPELINE, dataset).get("0", 0))

    def task_output(self) -> list[str]:
        return [meta.key for meta in self.files.list("task-output/", recursive=True)]

    def check(self, rows: int, dataset: str = URN) -> None:
        """W3: every row once, and the watermark says so."""
        assert self.published(dataset) == list(range(rows))
        assert self.watermark(dataset) == rows


def stage(
    store: Store, first: int, rows: int, *, files: int = 3, run: str = "run-1", dataset: str = URN, epoch: int = 0
) -> CommitSequence:
    renames = []
    for number in range(files):
        mine = range(first + number, first + rows, files)
        data = "".join(f"{row}\n" for row in mine).encode()
        source = f"task-output/{run}/{dataset}/{number}.txt"
        store.put(source, data)
        target = f"job-output/{dataset}/day={number}/{run}-{number}.txt"
        renames.append(Rename(source, target, len(data), checksum(data)))
    change = WatermarkChange(partition="0", expected=first or None, value=first + rows)
    return (
        CommitSequence.builder(STORE, dataset, epoch=epoch)
        .add(FsRenameCommitStep(source=store.uri, target=store.uri, files=tuple(renames[:1])))
        .add(FsRenameCommitStep(source=store.uri, target=store.uri, files=tuple(renames[1:])))
        .add(HighWatermarkCommitStep(pipeline=PIPELINE, dataset=dataset, changes=(change,)))
        .then_remove(store.uri, f"task-output/{run}/{dataset}/")
        .build()
    )


def rows_in(store: Store, prefix: str) -> list[int]:
    keys = [meta.key for meta in store.list(prefix, recursive=True)]
    return sorted(int(line) for data in store.get_many(keys) for line in data.split())


@register
class Say(CommitStep, frozen=True, kw_only=True, tag="test-say"):
    """A step of a user: leaves a word in a file, and fails while a file `broken` is beside it."""

    directory: str
    word: str

    def verify(self, context: StepContext) -> bool:
        path = Path(self.directory, "said")
        return path.exists() and self.word in path.read_text().split()

    def execute(self, context: StepContext) -> None:
        if Path(self.directory, "broken").exists():
            raise RuntimeError(f"cannot say {self.word}")
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        with Path(self.directory, "said").open("a") as file:
            file.write(f"{self.word}\n")


class NotRegistered(CommitStep, frozen=True, kw_only=True, tag="test-not-registered"):
    word: str


class Plain(Struct):
    word: str


def saying(directory: Path, word: str, *, dataset: str = URN, epoch: int = 0, store: str = STORE) -> CommitSequence:
    step = Say(directory=str(directory), word=word)
    return CommitSequence.builder(store, dataset, epoch=epoch).add(step).build()
