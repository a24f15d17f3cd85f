from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument
from lakeseal.protocol import paths
from lakeseal.protocol.paths import LogFile, LogFileKind, parse

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
versions = st.integers(0, paths.MAX_VERSION)


@given(versions)
def test_built_names_parse_to_what_they_were_built_from(version: int) -> None:
    built = {
        paths.commit_path(version): LogFileKind.COMMIT,
        paths.checksum_path(version): LogFileKind.CHECKSUM,
        paths.checkpoint_path(version): LogFileKind.CHECKPOINT,
        paths.v2_checkpoint_path(version, UUID, "json"): LogFileKind.V2_CHECKPOINT,
        paths.v2_checkpoint_path(version, UUID, "parquet"): LogFileKind.V2_CHECKPOINT,
        paths.staged_commit_path(version, UUID): LogFileKind.STAGED_COMMIT,
    }
    for key, kind in built.items():
        parsed = parse(key)
        assert parsed is not None
        assert (parsed.kind, parsed.version, parsed.key) == (kind, version, key)
        assert parsed == parse(key.removeprefix(paths.LOG_DIR))


@given(st.lists(versions, min_size=2, max_size=2, unique=True).map(sorted))
def test_compacted_names_parse_to_their_range(bounds: list[int]) -> None:
    start, end = bounds

    parsed = parse(paths.compacted_path(start, end))

    assert parsed is not None
    assert (parsed.kind, parsed.version, parsed.end_version) == (LogFileKind.COMPACTED, start, end)
    assert parse(paths.compacted_path(end, start)) is None


@given(st.lists(versions, max_size=20))
def test_keys_sort_as_versions_do(numbers: list[int]) -> None:
    assert [paths.commit_path(v) for v in sorted(numbers)] == sorted(paths.commit_path(v) for v in numbers)


@given(st.text(max_size=60))
def test_no_name_makes_parsing_fail(name: str) -> None:
    assert parse(name) is None or isinstance(parse(name), LogFile)


def test_a_multi_part_checkpoint_says_which_part_it_is() -> None:
    name = "00000000000000000010.checkpoint.0000000002.0000000003.parquet"

    assert parse(name) == LogFile(LogFileKind.MULTIPART_CHECKPOINT, 10, name, part=2, parts=3)


@pytest.mark.parametrize("directory", ["_commits", "_staged_commits"])
def test_a_staged_commit_says_its_uuid(directory: str) -> None:
    name = f"{directory}/00000000000000000007.{UUID}.json"

    assert parse(name) == LogFile(LogFileKind.STAGED_COMMIT, 7, name, uuid=UUID)


@pytest.mark.parametrize(
    ("name", "is_checkpoint"),
    [
        ("00000000000000000010.checkpoint.parquet", True),
        ("00000000000000000010.checkpoint.0000000001.0000000001.parquet", True),
        (f"00000000000000000010.checkpoint.{UUID}.json", True),
        ("00000000000000000010.json", False),
        ("00000000000000000010.crc", False),
        ("00000000000000000010.00000000000000000011.compacted.json", False),
    ],
)
def test_all_kinds_of_checkpoint_are_checkpoints(name: str, is_checkpoint: bool) -> None:
    parsed = parse(name)

    assert parsed is not None
    assert parsed.is_checkpoint is is_checkpoint


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_last_checkpoint",
        "0000000000000000001.json",
        "000000000000000000001.json",
        "9223372036854775808.json",
        "09223372036854775808.json",
        "99999999999999999999.json",
        "-0000000000000000001.json",
        "+0000000000000000001.json",
        "0000000000000000000a.json",
        "0000000000_000000001.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.json",
        "00000000000000000001.JSON",
        "00000000000000000001.json.tmp",
        "00000000000000000001.json\n",
        ".00000000000000000001.json.crc",
        "00000000000000000001",
        "00000000000000000001.checkpoint.parquet.tmp",
        "00000000000000000001.checkpoint.json",
        "00000000000000000001.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000001.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000001.checkpoint.000000001.0000000003.parquet",
        "00000000000000000001.checkpoint.not-a-uuid.parquet",
        f"00000000000000000001.checkpoint.{UUID}.orc",
        f"00000000000000000001.{UUID}.json",
        "00000000000000000002.00000000000000000002.compacted.json",
        "00000000000000000002.09223372036854775808.compacted.json",
        f"_commits/{UUID}.json",
        "_commits/00000000000000000001.json",
        f"_commits/0000000000000000001.{UUID}.json",
        f"_sidecars/{UUID}.parquet",
        "sub/00000000000000000001.json",
        "_delta_log/_delta_log/00000000000000000001.json",
    ],
)
def test_look_alikes_are_not_part_of_the_log(name: str) -> None:
    assert parse(name) is None


@pytest.mark.parametrize("version", [-1, 2**63])
def test_a_number_that_is_no_version_has_no_path(version: int) -> None:
    with pytest.raises(InvalidArgument):
        paths.commit_path(version)


def test_sidecars_lie_in_their_directory() -> None:
    assert paths.sidecar_path("x.parquet") == "_delta_log/_sidecars/x.parquet"
