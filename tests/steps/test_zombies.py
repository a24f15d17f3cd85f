"""W8: a run that lost its turn wakes up at the worst moment."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lakeseal.errors import Fenced, LakesealError
from lakeseal.steps import SequenceState
from lakeseal.steps.recovery import RecoveryOutcome
from support.published_rows import STORE, URN, World


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_w8_a_zombie_that_goes_on_after_others_finished_its_sequence_changes_nothing(world: World, done: int) -> None:
    zombie = world.take_turn()
    old = world.stage(0, 30, epoch=zombie)
    world.steps.put(old)
    for step in old.steps[:done]:
        step.execute(world.context(zombie))

    living = world.take_turn()
    assert world.recover(living, datasets=[URN]).clear == [URN]
    world.check(30)
    world.stage(30, 10, run="run-2", epoch=living).commit(world.steps, world.context(living))
    third = world.stage(40, 10, run="run-3", epoch=living)
    world.steps.put(third)

    with pytest.raises(LakesealError):
        old.finish(world.steps, world.context(zombie))

    assert world.steps.get_commit_sequence(STORE, URN) is not None, "the zombie must not remove what came after it"
    world.check(40)
    assert world.recover(living).datasets[0].outcome is RecoveryOutcome.FINISHED
    world.check(50)


def test_w8_a_zombie_that_wakes_up_to_record_its_sequence_is_fenced(world: World) -> None:
    zombie = world.take_turn()
    world.steps.claim(STORE, [URN], zombie)
    late = world.stage(0, 30, epoch=zombie)
    living = world.take_turn()
    world.recover(living, datasets=[URN])

    with pytest.raises(Fenced):
        late.commit(world.steps, world.context(zombie))

    world.check(0)
    world.stage(0, 30, run="run-2", epoch=living).commit(world.steps, world.context(living))
    world.check(30)


def test_w8_what_a_zombie_recorded_before_it_lost_its_turn_counts_once(world: World) -> None:
    zombie = world.take_turn()
    world.steps.put(world.stage(0, 30, epoch=zombie))
    living = world.take_turn()

    recovered = world.recover(living, datasets=[URN])

    assert recovered.datasets[0].outcome is RecoveryOutcome.FINISHED
    world.check(30)


@pytest.mark.field_bug(40)
def test_w8_a_zombie_at_its_watermark_step_moves_nothing(world: World) -> None:
    """Bug 40: between its renames and its watermark another run has taken over."""
    zombie = world.take_turn()
    old = world.stage(0, 30, epoch=zombie)
    world.steps.put(old)
    for step in old.steps[:2]:
        step.execute(world.context(zombie))
    living = world.take_turn()

    with pytest.raises(Fenced):
        old.steps[2].execute(world.context(zombie))

    assert world.watermark() == 0
    world.recover(living, datasets=[URN])
    world.check(30)


def test_a_zombie_with_an_aborted_sequence_publishes_nothing_that_stays(world: World) -> None:
    zombie = world.take_turn()
    old = world.stage(0, 30, epoch=zombie)
    world.steps.put(old)
    status = world.steps.status(STORE, URN)
    assert status is not None
    living = world.take_turn()
    world.steps.claim(STORE, [URN], living)
    world.files.delete([key for key in world.all_files() if key.startswith("task-output/")])
    world.steps.remove(STORE, URN, checksum=status.checksum, epoch=living)

    with suppress(LakesealError):
        old.finish(world.steps, world.context(zombie))

    world.check(0)


def test_w8_a_recovery_that_loses_its_turn_on_the_way_stops_and_sets_nothing_aside(world: World) -> None:
    first = world.take_turn()
    world.steps.put(world.stage(0, 30, epoch=first))
    late = world.take_turn()
    world.take_turn()  # has the lease, and has not claimed the dataset yet

    with pytest.raises(Fenced):
        world.recover(late, datasets=[URN])

    status = world.steps.status(STORE, URN)
    assert status is not None
    assert (status.state, status.tries) == (SequenceState.OPEN, 0)
    assert world.watermark() == 0
    assert world.recover(world.take_turn()).clear == [URN]
    world.check(30)
