"""Runs that record, execute, crash anywhere, are recovered, and come back as zombies, against what must hold."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakeseal import ledger
from lakeseal.errors import AlreadyExists, LakesealError
from lakeseal.steps import CommitSequence
from lakeseal.steps.fs_rename import FsRenameCommitStep
from support.published_rows import STORE, URN, Place, World


class Run:
    """A run and what it has staged. It may have lost its turn long ago."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.staged: CommitSequence | None = None


class Publishing(RuleBasedStateMachine):
    @initialize(files=st.booleans())
    def start(self, files: bool) -> None:
        self.ledger = ledger.open("sqlite://")
        place = Place(root=f"memory://{uuid.uuid4().hex}", ledger="sqlite://", files=files)
        self.world = World(place, ledger=self.ledger)
        self.runs: list[Run] = []
        self.watermark = 0
        self.numbers = 0
        self.new_run()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()

    @rule()
    def new_run(self) -> None:
        """The one before is a zombie from now on. Recovery comes first."""
        run = Run(self.world.take_turn())
        self.runs.append(run)
        recovered = self.world.recover(run.epoch, datasets=[URN])
        assert recovered.clear == [URN], recovered
        self.world.check(self.world.watermark())

    @rule(rows=st.integers(1, 6))
    def extract(self, rows: int) -> None:
        run = self.runs[-1]
        if self.world.steps.exists(STORE, URN):
            return  # W5
        self.numbers += 1
        run.staged = self.world.stage(self.world.watermark(), rows, files=2, run=f"run-{self.numbers}", epoch=run.epoch)

    @precondition(lambda self: self.runs[-1].staged is not None)
    @rule(done=st.integers(0, 3))
    def publish_and_crash(self, done: int) -> None:
        run = self.runs[-1]
        assert run.staged is not None
        try:
            self.world.steps.put(run.staged)
        except AlreadyExists:
            return
        for step in run.staged.steps[:done]:
            if not step.verify(self.world.context(run.epoch)):
                try:
                    step.execute(self.world.context(run.epoch))
                except LakesealError:
                    return  # staged against a watermark that has moved since: not this run's any more

    @precondition(lambda self: self.runs[-1].staged is not None)
    @rule(data=st.data())
    def crash_inside_a_rename(self, data: st.DataObject) -> None:
        """Some files are moved, and one is half there, as by a copy that was cut off."""
        sequence = self.world.steps.get_commit_sequence(STORE, URN)
        if sequence is None:
            return
        step = sequence.steps[data.draw(st.integers(0, 1), label="step")]
        assert isinstance(step, FsRenameCommitStep)
        file = data.draw(st.sampled_from(step.files), label="file")
        sources = set(self.world.all_files())
        if file.source in sources and file.target not in sources:
            content = self.world.files.get(file.source)
            cut = data.draw(st.integers(0, len(content)), label="bytes")
            self.world.files.put(file.target, content[:cut] if cut < len(content) else content)
            self.half = file.target

    @precondition(lambda self: self.runs[-1].staged is not None)
    @rule()
    def publish(self) -> None:
        run = self.runs[-1]
        assert run.staged is not None
        try:
            run.staged.commit(self.world.steps, self.world.context(run.epoch))
        except LakesealError:
            return
        run.staged = None

    @rule(data=st.data(), whole=st.booleans())
    def zombie_wakes_up(self, data: st.DataObject, whole: bool) -> None:
        zombies = [run for run in self.runs[:-1] if run.staged is not None]
        if not zombies:
            return
        run = data.draw(st.sampled_from(zombies), label="zombie")
        assert run.staged is not None
        context: Any = self.world.context(run.epoch)
        try:
            if whole:
                run.staged.commit(self.world.steps, context)
            else:
                run.staged.finish(self.world.steps, context)
        except LakesealError:
            pass

    @rule()
    def recover(self) -> None:
        run = self.runs[-1]
        recovered = self.world.recover(run.epoch, datasets=[URN])
        assert recovered.clear == [URN], recovered
        assert not self.world.steps.exists(STORE, URN)
        self.world.check(self.world.watermark())

    @invariant()
    def watermarks_never_go_back(self) -> None:
        if hasattr(self, "world"):
            now = self.world.watermark()
            assert now >= self.watermark
            self.watermark = now

    @invariant()
    def what_is_below_the_watermark_is_visible_once(self) -> None:
        if hasattr(self, "world"):
            rows = [row for row in self.world.published() if row < self.watermark]
            assert rows == list(range(self.watermark))


class TestPublishing(Publishing.TestCase):
    settings = settings(max_examples=25, stateful_step_count=20)


@pytest.mark.stress
@pytest.mark.timeout(3600)
class TestPublishingForLong(Publishing.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=50)
