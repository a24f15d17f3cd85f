from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from lakeseal import typed_json

# In a process of its own, because what it looks for is the death of the process.
RACE = """
import sys, threading
import msgspec
from lakeseal import typed_json

sys.setswitchinterval(1e-6)
for n in range(300):
    fields = [(f"f{i}", dict[str, list[int]] | None, None) for i in range(20)]
    inner = msgspec.defstruct(f"Inner{n}", fields)
    parts = [msgspec.defstruct(f"Part{n}_{k}", [("a", inner), *fields]) for k in range(5)]
    whole = msgspec.defstruct(f"Whole{n}", [(f"p{k}", part | None, None) for k, part in enumerate(parts)])
    start = threading.Barrier(4)

    def decode(kind, data):
        start.wait()
        typed_json.decode(data, kind)
        typed_json.convert({}, whole)

    asked = [(whole, b'{"p1": {"a": {}}}'), (list[whole], b"[{}]"), (parts[0], b'{"a": {}}'), (inner, b"{}")]
    threads = [threading.Thread(target=decode, args=one) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_threads_may_decode_a_type_for_the_first_time_at_the_same_moment() -> None:
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


class Point(msgspec.Struct):
    x: int


def test_it_says_what_msgspec_says() -> None:
    assert typed_json.decode(b'{"x": 1}', Point) == typed_json.convert({"x": 1}, Point) == Point(1)
    assert typed_json.decoder(Point).decode('{"x": 1}') == Point(1)
    with pytest.raises(msgspec.ValidationError):
        typed_json.decode(b'{"x": "one"}', Point)
