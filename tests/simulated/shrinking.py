"""A smaller run that fails in the same way: with fewer clients, jobs, faults, kills and tables than the one that a seed
gave. What is left is what a reader has to think about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from simulated.world import Plan, run


def why(plan: Plan) -> str:
    """What is wrong with a run; empty if nothing is. Errors of the product that no run should see count too."""
    try:
        run(plan)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shrunk(plan: Plan, *, fails: Callable[[Plan], str] = why, tries: int = 300) -> Plan:
    """At most `tries` runs are made. Each smaller plan is tried with a few other orders too: with less to do, another
    actor is next."""
    kind = _kind(fails(plan))
    assert kind, "this run does not fail"
    while tries > 0:
        for smaller in _smaller(plan):
            tries -= 1
            if tries <= 0:
                break
            if _kind(fails(smaller)) == kind:
                plan = smaller
                break
        else:
            break
    return plan


def _kind(reason: str) -> str:
    """Which invariant, without what it was broken by."""
    return reason.partition(" ")[0] + reason.partition(" ")[2].partition(" ")[0]


def _smaller(plan: Plan) -> Iterator[Plan]:
    for place in range(len(plan.jobs)):
        yield replace(plan, jobs=plan.jobs[:place] + plan.jobs[place + 1 :])
    for place, jobs in enumerate(plan.jobs):
        for job in range(len(jobs)):
            fewer = jobs[:job] + jobs[job + 1 :]
            yield replace(plan, jobs=(*plan.jobs[:place], fewer, *plan.jobs[place + 1 :]))
    for fault in plan.faults:
        yield replace(plan, faults=tuple(one for one in plan.faults if one != fault))
    if plan.kills:
        yield replace(plan, kills=plan.kills - 1)
    if plan.jumps:
        yield replace(plan, jumps=0)
    if plan.processes > 1:
        yield replace(plan, processes=1)
    if len(plan.owned) > 1:
        yield replace(plan, owned=plan.owned[:-1])
