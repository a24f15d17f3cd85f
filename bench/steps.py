"""steps: recovery of 20,000 open steps (LAKESEAL_BENCH_STEPS for more), renames of small files, recorded and none done.

Three shapes of the same work, because they cost differently: 200 datasets of 500 files each, as a pipeline leaves
them, recorded in the ledger and as files; and one dataset with all files. A step is added for every file; builders
make one record of them.

The peer does the least that anything could: it renames the same files with `os.rename`, one after the other, and makes
their directories durable once each. It keeps no record, and checks nothing. What recovery adds to it is reading the
records, verifying every file by its size and its SHA-256, moving the watermarks, and removing the records.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import harness
from harness import Report, Subject, Timer

from lakeseal import ledger
from lakeseal.steps.context import StepContext
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, checksum
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import recover
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.storage import open_store

STEPS = int(os.environ.get("LAKESEAL_BENCH_STEPS", "20000"))
SIZE = 1024
DIRECTORIES = 10


def main(report: Report) -> None:
    shapes = {
        "200 datasets": {"datasets": 200, "files": False},
        "200 datasets, recorded as files": {"datasets": 200, "files": True},
        "1 dataset": {"datasets": 1, "files": False},
    }
    # Deleted at the end: ext4 without a journal is slow to make files while many have just been freed.
    with harness.scratch() as folder:
        for name, shape in shapes.items():
            arguments = {**shape, "steps": STEPS, "folder": str(folder)}
            report.compare(
                f"{STEPS:,} renames: {name}",
                [
                    Subject(name="recovery", function=recovering, arguments=arguments),
                    Subject(name="os.rename alone", function=renaming, arguments=arguments),
                ],
                warm_up=False,
            )


def recovering(timer: Timer, folder: str, datasets: int, steps: int, files: bool) -> int:
    root = Path(tempfile.mkdtemp(dir=folder))
    sequences = staged(root, datasets, steps)
    with ledger.open(f"sqlite:///{root}/ledger.db") as book:
        records = FileStepStore(open_store(root / "steps")) if files else LedgerStepStore(book)
        for sequence in sequences:
            records.put(sequence)
        os.sync()
        with timer:
            result = recover(records, "bench", StepContext(ledger=book, owners={}))
        assert len(result.clear) == datasets, result.not_clear
    return count(root / "job-output")


def renaming(timer: Timer, folder: str, datasets: int, steps: int, files: bool) -> int:
    root = Path(tempfile.mkdtemp(dir=folder))
    pairs = [
        (f"{root}/{file.source}", f"{root}/{file.target}")
        for sequence in staged(root, datasets, steps)
        for step in sequence.steps
        if isinstance(step, FsRenameCommitStep)
        for file in step.files
    ]
    os.sync()
    with timer:
        folders = {os.path.dirname(target) for _, target in pairs}
        for one in folders:
            os.makedirs(one)
        for source, target in pairs:
            os.rename(source, target)
        for one in folders | {os.path.dirname(source) for source, _ in pairs}:
            descriptor = os.open(one, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return count(root / "job-output")


def staged(root: Path, datasets: int, steps: int) -> list[CommitSequence]:
    uri = open_store(root).uri
    each = steps // datasets
    sequences = []
    for dataset in range(datasets):
        renames = []
        folder = f"task-output/{dataset}"
        (root / folder).mkdir(parents=True)
        for number in range(each):
            data = f"{dataset} {number} ".encode().ljust(SIZE, b"x")
            (root / folder / f"{number}.txt").write_bytes(data)
            target = f"job-output/{dataset}/part={number % DIRECTORIES}/{number}.txt"
            renames.append(Rename(f"{folder}/{number}.txt", target, SIZE, checksum(data)))
        change = WatermarkChange(partition="0", expected=None, value=each)
        sequences.append(
            CommitSequence.builder("bench", f"urn:{dataset}")
            .add(*(FsRenameCommitStep(source=uri, target=uri, files=(rename,)) for rename in renames))
            .add(HighWatermarkCommitStep(pipeline="bench", dataset=f"urn:{dataset}", changes=(change,)))
            .then_remove(uri, f"{folder}/")
            .build()
        )
    return sequences


def count(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))
