"""What `make bench` rests on: its parts are there, what was missed stays in the figures, and the page shows it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import page  # noqa: E402
import run  # noqa: E402
from harness import Growth, Report, Subject, Timer  # noqa: E402

from support import plots  # noqa: E402
from support.figures import Figures  # noqa: E402


def slow(timer: Timer, seconds: float) -> dict[str, int]:
    timer.seconds = seconds
    return {"rows": 3}


def other(timer: Timer) -> dict[str, int]:
    return {"rows": 4}


def subject(name: str, seconds: float) -> Subject:
    return Subject(name=name, function=slow, arguments={"seconds": seconds})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processes that measure."""
    paths = [str(Path(__file__).parent), str(ROOT / "bench"), str(ROOT / "tests")]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))
    for function in (slow, other):
        monkeypatch.setattr(function, "__module__", Path(__file__).stem)


@pytest.mark.parametrize("name", sorted({*run.BENCHMARKS, *run.WITH_PEERS}))
def test_a_benchmark_is_a_module_that_says_what_it_compares(name: str) -> None:
    text = (ROOT / "bench" / f"{name.replace('-', '_')}.py").read_text()
    assert text.startswith(f'"""{name}: ')
    assert "\ndef main(report: Report) -> None:" in text


def test_a_ratio_is_the_peers_time_by_ours_and_what_is_missed_says_so() -> None:
    report = Report("some", repeats=1)
    peers = [subject("quick", 1.0), subject("slow", 6.0)]
    report.compare("case", [subject("lakeseal", 2.0), *peers], targets={"slow": 3.0, "quick": 0.6}, reason="It is far.")
    report.compare("again", [subject("lakeseal", 2.0), *peers], of_fastest=0.5, warm_up=False)
    assert [(one["ratio"], one["target"], one["met"]) for one in report.figures({})["targets"]] == [
        (0.5, 0.6, False),
        (3.0, 3.0, True),
        (0.5, 0.5, True),
    ]
    assert [one.get("reason") for one in report.figures({})["targets"]] == ["It is far.", None, None]


def test_subjects_that_saw_different_things_are_not_compared() -> None:
    report = Report("some", repeats=1)
    with pytest.raises(SystemExit, match="theirs saw"):
        report.compare("case", [subject("lakeseal", 1.0), Subject(name="theirs", function=other)], warm_up=False)


def test_a_run_of_some_cases_leaves_the_figures_of_the_others() -> None:
    former = {"cases": {"one": {"told": {}}, "two": {"told": {}}}}
    former |= {
        "targets": [{"case": name, "name": name, "ratio": 1.0, "target": 2.0, "met": False} for name in former["cases"]]
    }
    report = Report("some", repeats=1, only="two")
    for case in ("one", "two"):
        report.compare(case, [subject("lakeseal", 1.0), subject("peer", 3.0)], targets={"peer": 2.0}, warm_up=False)
    found = report.figures(former)
    assert [*found["cases"]] == ["one", "two"]
    assert [(one["case"], one["met"]) for one in found["targets"]] == [("one", False), ("two", True)]
    assert [*Report("some", repeats=1).figures(former)["cases"]] == []


def test_the_page_has_what_was_missed_and_a_plot_of_what_grows(tmp_path: Path) -> None:
    kept = Figures(folder=tmp_path, head=page.head, section=page.section, drawings=page.drawings)
    report = Report("some", repeats=1, about="Two sides.")
    report.compare("case", [subject("lakeseal", 2.0), subject("peer", 1.0)], targets={"peer": 1.0}, reason="It is far.")
    points: dict[str, Any] = {"ms": [(1, 0.5), (1000, 0.5)]}
    report.growth(Growth(case="By size", across="files", up="ms", series=points, explained="Flat."))
    kept.keep("some", report.figures({}))
    text = (tmp_path / "figures.md").read_text()
    assert "0 of 1 targets are met" in text
    assert "| 0.50 | 1.00 | **missed** It is far. |" in text
    assert "![By size](by-size.svg)" in text
    assert kept.read()["some"]["targets"][0]["met"] is False
    drawn = ElementTree.fromstring((tmp_path / "by-size.svg").read_text())
    (line,) = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    heights = {point.split(",")[1] for point in line.attrib["points"].split()}
    assert len(heights) == 1


def test_nothing_is_drawn_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        plots.lines("Empty", "x", "y", {"ms": [(0, 1)]})


@pytest.mark.parametrize("folder", ["bench", "trust"])
def test_the_page_that_is_kept_is_made_of_the_figures_that_are_kept(folder: str) -> None:
    place = ROOT / "docs" / folder
    if not (place / "figures.json").exists():
        pytest.skip(f"make {folder} has kept no figures yet")
    kept = page.KEPT
    if folder == "trust":
        sys.path.append(str(ROOT / "trust"))
        kept = importlib.import_module("report").KEPT
    assert (place / "figures.md").read_text() == kept.page(kept.read())
