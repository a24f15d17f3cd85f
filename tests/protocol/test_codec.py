from __future__ import annotations

import pytest

from lakeseal.errors import BrokenCommit, InvalidArgument
from lakeseal.protocol.actions import CommitInfo, SetTransaction, UnknownAction
from lakeseal.protocol.codec import MAX_DEPTH, decode, encode

TXN = b'{"txn":{"appId":"a","version":1}}'
ADD = b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}'


def test_null_siblings_are_tolerated() -> None:
    assert decode(b'{"add":null,"txn":{"appId":"a","version":1},"remove":null}') == [
        SetTransaction(app_id="a", version=1)
    ]


@pytest.mark.parametrize("data", [b"\n" + TXN + b"\n\n  \n", TXN + b"\r\n", b"  " + TXN + b"\t\n", TXN])
def test_blank_lines_and_blanks_around_a_line_are_tolerated(data: bytes) -> None:
    assert decode(data) == [SetTransaction(app_id="a", version=1)]


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n"])
def test_an_empty_file_has_no_actions(data: bytes) -> None:
    assert decode(data) == []


def test_an_unknown_action_is_kept_whatever_it_holds() -> None:
    data = b'{"later":[1,{"a":null}]}\n'

    assert decode(data) == [UnknownAction(name="later", value=[1, {"a": None}])]
    assert encode(decode(data)) == data


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    action = SetTransaction(app_id="a\u2028b\u0085c", version=1)

    assert decode(encode([action, action])) == [action, action]


def test_text_beyond_ascii_is_written_as_utf_8() -> None:
    assert encode([SetTransaction(app_id="é☃", version=1)]) == '{"txn":{"appId":"é☃","version":1}}\n'.encode()


def test_integers_beyond_64_bits_survive_where_nobody_interprets_them() -> None:
    data = b'{"commitInfo":{"operationMetrics":{"n":123456789012345678901234567890}}}\n'

    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"null",
        b"[]",
        b'"add"',
        b"{}",
        b'{"add":null}',
        TXN[:-1] + b',"commitInfo":{}}',
        b'{"txn":{"appId":"a","version":1},"txn":{"appId":"b","version":2}}',
        b'{"txn":{"appId":"a","appId":"b","version":1}}',
        b'{"commitInfo":{"a":[{"b":1,"b":2}]}}',
        b'{"txn":{"appId":"a", "version":1, "\\u0061ppId":"b"}}',
        b'{"add":5}',
        b'{"add":"path"}',
        b'{"add":[]}',
        ADD.replace(b'"size":1', b'"size":"1"'),
        ADD.replace(b'"size":1', b'"size":1.5'),
        ADD.replace(b'"size":1', b'"size":9223372036854775808'),
        ADD.replace(b'"size":1', b'"size":1' + b"0" * 5000),
        ADD.replace(b'"size":1', b'"size":1e400'),
        ADD.replace(b'"size":1', b'"size":NaN'),
        ADD.replace(b'"size":1,', b""),
        ADD.replace(b'"partitionValues":{}', b'"partitionValues":{"p":1}'),
        ADD.replace(b'"path":"a"', b'"path":null'),
        b'{"metaData":{"id":"m","schemaString":"{}","partitionx$Columns":["day"],"configuration":{}}}',
        b'{"metaData":{"id":"m","schemaString":"{}","partitionColumns":null,"configuration":{}}}',
        ADD[:-1],
        ADD[: len(ADD) // 2],
        ADD + ADD,
        b"\xef\xbb\xbf" + TXN,
        TXN.replace(b'"a"', b'"\xff"'),
        TXN.replace(b'"a"', b'"\\ud800"'),
        TXN.decode().encode("utf-16"),
        b'{"commitInfo":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"later":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
        b"\x00",
    ],
)
def test_a_line_that_cannot_be_trusted_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(BrokenCommit, match=r"^Line 3 "):
        decode(TXN + b"\n\n" + line)


def test_a_torn_last_line_is_refused() -> None:
    whole = TXN + b"\n" + ADD + b"\n"
    start = len(TXN) + 2

    for end in range(start, len(TXN) + len(ADD)):
        with pytest.raises(BrokenCommit, match="Line 2"):
            decode(whole[:end])


def test_the_error_names_the_field_that_is_wrong() -> None:
    with pytest.raises(BrokenCommit, match=r"'add'.*size"):
        decode(ADD.replace(b'"size":1', b'"size":"1"'))


def test_many_values_side_by_side_are_not_deep() -> None:
    line = b'{"commitInfo":{"a":[' + b",".join([b'{"b":[]}'] * 500) + b"]}}\n"

    assert encode(decode(line)) == line


@pytest.mark.field_bug("S5")
def test_an_oversize_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeseal.protocol.codec.MAX_LINE_BYTES", 20)

    with pytest.raises(BrokenCommit, match="longer than 20 bytes"):
        decode(TXN)


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_what_json_cannot_hold_is_refused_when_written(value: object) -> None:
    with pytest.raises(InvalidArgument):
        encode([CommitInfo(user_metadata=value)])


def test_what_is_unknown_beside_an_action_is_kept_and_does_not_hide_it() -> None:
    line = b'{"txn":{"appId":"a","version":1},"alongside":["b",2]}\n'
    known, unknown = decode(line)
    assert known == SetTransaction(app_id="a", version=1)
    assert unknown == UnknownAction(name="alongside", value=["b", 2])
