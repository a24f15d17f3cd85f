from __future__ import annotations

from pathlib import Path

import pytest

from lakeseal.cli.java import find_java


def java_home(folder: Path, release: str | None, says: str = "") -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{release}"\n')
    return folder


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


def test_no_java_anywhere_is_none() -> None:
    assert find_java(folders=()) is None


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_home(tmp_path / "jvm" / "java-17", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "mine", "21")))

    found = find_java(folders=[str(tmp_path / "jvm" / "*")])

    assert found == (tmp_path / "mine", 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "mine", "1.8.0_392")))
    java_home(tmp_path / "jvm" / "java-11", "11.0.2")
    java_home(tmp_path / "jvm" / "java-17", "17.0.9")

    found = find_java(folders=[str(tmp_path / "jvm" / "*")])

    assert found == (tmp_path / "jvm" / "java-17", 17)


def test_java_on_the_path_is_followed_to_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "jvm" / "java-25", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert find_java(folders=()) == (home, 25)


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', None), ("what?", None)],
)
def test_a_home_without_a_release_file_is_asked(
    says: str, version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, release=None, says=says)))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # for the shell of the fake

    found = find_java(folders=())

    assert (found.version if found and found.home == tmp_path else None) == version
