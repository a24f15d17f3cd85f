"""Steps of many datasets, done by tasks instead of the driver: each task has a share of the datasets.

A task records each of its sequences, runs it and removes it, exactly as the driver would; so what it leaves when it
dies is found by recovery. Run again, a sequence finds its steps done. What travels as rows is JSON without secrets.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import LakesealError
from lakeseal.ingest.config import PipelineConfig
from lakeseal.owner.config import OwnerConfig
from lakeseal.steps import fs_rename, high_watermark, table_commit
from lakeseal.steps.connect import step_store
from lakeseal.steps.context import StepSettings
from lakeseal.steps.sequence import CommitSequence, SequenceRecord
from lakeseal.steps.turn import Turn

STEPS = (fs_rename.FsRenameCommitStep, high_watermark.HighWatermarkCommitStep, table_commit.TableCommitStep)
"""Known wherever this module is, before threads ask for them."""
FROM = 64
"""So many datasets are worth a job."""
_THREADS = 8


class _Part(Struct, frozen=True, kw_only=True):
    dataset: str
    payload: str
    count: int
    checksum: str


class CommitShare(Struct, frozen=True, kw_only=True):
    """What a task is told."""

    store: str
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, store: str, sequences: Sequence[CommitSequence]) -> CommitShare:
        records = [(sequence.dataset, sequence.record()) for sequence in sequences]
        return cls(
            store=store,
            parts=tuple(
                _Part(
                    dataset=dataset,
                    payload=base64.b64encode(record.payload).decode(),
                    count=record.count,
                    checksum=record.checksum,
                )
                for dataset, record in records
            ),
        )

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def commit_share(settings: StepSettings, text: str) -> str:
    """From the JSON of a `CommitShare` to that of a map of datasets to their errors, or null."""
    asked = typed_json.decode(text, CommitShare)
    with settings.open() as context:
        steps = step_store(settings, context)

        def commit(part: _Part) -> tuple[str, dict[str, Any] | None]:
            record = SequenceRecord(payload=base64.b64decode(part.payload), count=part.count, checksum=part.checksum)
            try:
                record.sequence(asked.store, part.dataset).commit(steps, context)
            except LakesealError as error:
                return part.dataset, error.to_json()
            except Exception as error:  # a user's step may raise anything
                return part.dataset, LakesealError(f"{type(error).__name__}: {error}").to_json()
            return part.dataset, None

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-publish") as pool:
            return msgspec.json.encode(dict(pool.map(commit, asked.parts))).decode()


def settings_for(config: PipelineConfig, turn: Turn) -> StepSettings | None:
    """What tasks need to run steps of this pipeline; None if they can't, as its stores are opened in different ways."""
    options: list[Mapping[str, str]] = [dataset.target.storage_options for dataset in config.datasets]
    if any(one != options[0] for one in options):
        return None
    owner = OwnerConfig(url=config.ledger, batch_size=1, token=config.token)
    return StepSettings(
        ledger=config.ledger, token=config.token, storage_options=dict(options[0]), owners=(owner,), turn=turn
    )
