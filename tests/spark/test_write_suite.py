"""The suite of writes on the shared session."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def load_suite() -> ModuleType:
    # Not put into sys.modules, so that functions in it travel to tasks by value: tasks could not import it.
    spec = importlib.util.spec_from_file_location("suite", Path(__file__).with_name("suite.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUITE = load_suite().SUITE


@pytest.mark.parametrize("name", SUITE)
def test_in_a_local_session(name: str, spark: Any, tmp_path: Path) -> None:
    SUITE[name](spark, tmp_path)
