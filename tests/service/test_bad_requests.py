"""Requests that mean harm are refused, and the service goes on; twice the load is told to wait."""

from __future__ import annotations

import sys
from pathlib import Path

from support.bad_requests import ALL, BadRequest, wrong

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "trust"))

import bad_requests  # noqa: E402
from report import Report  # noqa: E402


def test_sixty_requests_that_mean_harm_are_refused_and_tell_nothing(tmp_path: Path) -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 60
    report = Report("bad-requests", "")
    with bad_requests.served(tmp_path) as (url, values):
        bad_requests.harmful(report, url, values)
    assert report.violations == []


def test_no_message_to_any_operation_is_an_error_of_the_service(tmp_path: Path) -> None:
    report = Report("bad-requests", "")
    with bad_requests.served(tmp_path) as (url, values):
        bad_requests.described(report, url, values["good"], examples=1)
    assert report.violations == []
    assert report.close()["counts"]["described: messages"] > 50


def test_twice_the_load_is_told_to_wait_and_is_served_then(tmp_path: Path) -> None:
    report = Report("bad-requests", "")
    with bad_requests.served(tmp_path, rate=bad_requests.RATE) as (url, values):
        bad_requests.crowded(report, url, values, seconds=3)
    assert report.violations == []


def test_an_answer_that_is_no_refusal_or_tells_too_much_is_noticed() -> None:
    harmful = BadRequest(name="x", line="GET / HTTP/1.1")
    assert wrong(harmful, 200, b"")
    assert wrong(harmful, 500, b"")
    assert wrong(harmful, 400, b"Traceback (most recent call last)")
    assert wrong(harmful, 0, b"") == wrong(harmful, 400, b"no") == ""
