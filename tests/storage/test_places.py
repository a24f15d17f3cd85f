"""What is below what, where links lead elsewhere and where hundreds of places are allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakeseal.storage.places import is_in_any


def test_a_place_is_where_its_links_lead_whatever_its_text_says(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours" / "way out").symlink_to(tmp_path / "theirs")
    (tmp_path / "way in").symlink_to(tmp_path / "ours")
    ours = [str(tmp_path / "ours")]
    assert is_in_any((f"file://{tmp_path}/ours", "a/b"), ours)
    assert is_in_any((f"file://{tmp_path}/way in", "a"), ours)
    assert is_in_any((str(tmp_path / "ours"), "a"), [f"file://{tmp_path}/way in"])
    assert not is_in_any((str(tmp_path / "ours"), "way out/a"), ours)
    assert not is_in_any((str(tmp_path / "ours-2"), "a"), ours)


def test_of_hundreds_of_places_the_disk_is_asked_about_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    realpath = os.path.realpath

    def counted(path: str) -> str:
        asked.append(path)
        return realpath(path)

    allowed = [f"{tmp_path}/{number}" for number in range(500)]
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "realpath", counted)
        assert is_in_any((f"file://{tmp_path}/499", "part-0.parquet"), allowed)
    assert len(asked) == 2
