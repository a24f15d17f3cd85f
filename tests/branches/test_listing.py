from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

from lakeseal.branches.embedded.collector import ListedKind, Listing


def test_what_is_taken_out_is_left_alone_and_the_rest_comes_in_batches() -> None:
    with Listing() as listing:
        keys = [f"data/{job}/{number:04}" for job in ("a", "a-b", "é") for number in range(1_100)]
        listing.add(ListedKind.OBJECT, ((key, 3) for key in keys))
        listing.add(ListedKind.COMMIT, [("commits/x", 1)])

        listing.take_out(ListedKind.OBJECT, ["data/é/0000", "data/é/0001", "not there", "commits/x"])
        assert listing.take_out_below(ListedKind.OBJECT, "data/a/") == 1_100, "data/a-b/ is another directory"

        assert listing.count(ListedKind.OBJECT) == 2_198
        assert listing.bytes(ListedKind.OBJECT) == 3 * 2_198
        assert listing.count(ListedKind.COMMIT) == 1
        batches = list(listing.batches(ListedKind.OBJECT))
        assert [len(batch) for batch in batches] == [1_000, 1_000, 198]
        assert [key for batch in batches for key in batch] == keys[1_100:2_200] + keys[2_202:]
        assert listing.some(2) == ("commits/x", "data/a-b/0000")


def test_keys_are_not_held_in_memory() -> None:
    def keys() -> Iterator[str]:
        return (f"data/job/{number:0100}" for number in range(20_000))

    tracemalloc.start()
    try:
        with Listing() as listing:
            listing.add(ListedKind.OBJECT, ((key, 1) for key in keys()))
            listing.take_out(ListedKind.OBJECT, keys())
            assert listing.count(ListedKind.OBJECT) == 0
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
