from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeseal.ingest.orders import orders, tasks
from lakeseal.ingest.sources.source import WorkUnit

UNITS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 10**9)), min_size=1, max_size=40)
LIMITS = {"task_bytes": 128 * 2**20, "parallel": 8}


def units(of: list[tuple[str, int]]) -> list[WorkUnit]:
    return [WorkUnit(partition=name, high=n, size=size) for n, (name, size) in enumerate(of)]


@given(UNITS, st.sampled_from(["full", "successful", "partial"]))
def test_every_unit_is_in_one_order_of_one_task(of: list[tuple[str, int]], policy: str) -> None:
    given_units = units(of)
    made = orders(3, given_units, policy, **LIMITS)  # type: ignore[arg-type]
    dealt = [order for task in tasks(made, **LIMITS) for order in task]
    assert sorted(order.number for order in dealt) == list(range(len(made)))
    assert sorted(unit.high for order in dealt for unit in order.units) == list(range(len(given_units)))
    assert all(order.units and order.dataset == 3 for order in dealt)


@given(UNITS)
def test_where_parts_may_fail_by_themselves_a_partition_is_one_order_in_its_order(
    of: list[tuple[str, int]],
) -> None:
    for order in orders(0, units(of), "partial", **LIMITS):
        assert len({unit.partition for unit in order.units}) == 1
        highs = [unit.high for unit in order.units]
        assert highs == sorted(highs)


def test_little_work_is_one_order_and_much_is_shared_evenly() -> None:
    small = units([("a", 1000)] * 50)
    assert len(orders(0, small, "full", **LIMITS)) == 1
    large = units([("a", 64 * 2**20)] * 32)
    made = orders(0, large, "full", **LIMITS)
    assert len(made) == 16
    assert {order.size for order in made} == {128 * 2**20}
