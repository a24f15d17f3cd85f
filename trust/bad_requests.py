"""Bad requests: messages that nobody should send, 60 that mean harm, and twice the load that can be served.

Schemathesis makes messages for every operation that the service's own description (OpenAPI) has: such as it allows,
and such as it does not. None may be answered by an error of the service (5xx), nor by anything that the description
does not say. The others are written by hand, and sent in bytes: callers without a right, places beyond what is served,
spoilt messages, spoilt HTTP. And a token that asks twice as often as it may is told 429 and when to come again, others
are served meanwhile, and it is served again when it has waited.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import SkipTest

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from report import Report

from lakeseal.clock import now_ms
from lakeseal.ledger import open as open_ledger
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from support.bad_requests import ALL, send, wrong
from support.lossy_catalog import MortalService

EXAMPLES = 50
"""Of each operation, and of each of the two kinds."""
RATE = 40


def main(report: Report) -> None:
    examples = int(report.only.partition("=")[2]) if report.only.startswith("examples=") else EXAMPLES
    with tempfile.TemporaryDirectory() as folder:
        with served(Path(folder) / "described") as (url, values):
            described(report, url, values["good"], examples)
        with served(Path(folder) / "harmful") as (url, values):
            harmful(report, url, values)
        with served(Path(folder) / "crowded", rate=RATE) as (url, values):
            crowded(report, url, values)


@contextmanager
def served(folder: Path, *, rate: int = 0) -> Iterator[tuple[str, Mapping[str, str]]]:
    """A service in a process of its own, and what requests to it are filled in with."""
    place = folder / "data"
    place.mkdir(parents=True)
    service = MortalService(folder, "--rate", str(rate), "--root", str(place))
    try:
        with open_ledger(service.ledger) as opened:

            def token(name: str, grant: str, lifetime_ms: int | None = None) -> str:
                now = now_ms()
                expires = None if lifetime_ms is None else now + lifetime_ms
                return tokens.create(opened, name, (Grant.from_text(grant),), now=now, expires=expires)[0]

            values = {
                "place": place.as_uri(),
                "good": token("good", "admin"),
                "other": token("other", "admin"),
                "narrow": token("narrow", f"reader:{place}/mine"),
                "expired": token("expired", "admin", lifetime_ms=1),
                "revoked": token("revoked", "admin"),
            }
            tokens.revoke(opened, values["revoked"].split("_")[1], now=now_ms())
            values["upper"] = values["good"].upper()
        yield service.url, values
    finally:
        service.stop()


def described(report: Report, url: str, token: str, examples: int) -> None:
    # Only here, as it loads much.
    import schemathesis
    from schemathesis import GenerationMode

    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found: Counter[str] = Counter()
    told: set[str] = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _messages(operation, mode, headers, examples, found, told)
            except (Unsatisfiable, SkipTest):
                found["kinds of message that an operation cannot have"] += 1
        found["operations"] += 1
    for what, number in found.items():
        report.count(f"described: {what}", number)
    for one in sorted(told):
        report.violation(one)


def _messages(
    operation: Any, mode: Any, headers: Mapping[str, str], examples: int, found: Counter[str], told: set[str]
) -> None:
    from schemathesis.core.failures import Failure, FailureGroup

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def look(case: Any) -> None:
        answer = case.call(headers=headers)
        found["messages"] += 1
        found[f"answered {answer.status_code // 100}xx"] += 1
        if answer.status_code >= 500:
            told.add(f"{operation.label}: {answer.status_code} for {case.as_curl_command()[:500]}")
            return
        try:
            operation.validate_response(answer)
        except (Failure, FailureGroup) as error:
            told.add(f"{operation.label}: {answer.status_code} is not as described: {str(error)[:300]}")

    look()


def harmful(report: Report, url: str, values: Mapping[str, str]) -> None:
    statuses: Counter[int] = Counter()
    for request in ALL:
        status, said = send(url, request, values)
        statuses[status] += 1
        if reason := wrong(request, status, said):
            report.violation(reason)
    report.count("harmful requests", len(ALL))
    report.count("harmful requests that were refused", sum(statuses.values()) - statuses[200])
    answer = httpx.get(f"{url}/v1/owner", headers={"Authorization": f"Bearer {values['good']}"}, trust_env=False)
    if answer.status_code != 200:
        report.violation(f"after all of them the service answers {answer.status_code}")


def crowded(report: Report, url: str, values: Mapping[str, str], *, seconds: float = 8.0) -> None:
    """Twice what may be served, one token; now and then another one asks, which is not in its way."""
    statuses: Counter[int] = Counter()
    others: Counter[int] = Counter()
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client, ThreadPoolExecutor(16) as pool:

        def ask(token: str) -> httpx.Response:
            return client.get("/v1/owner", headers={"Authorization": f"Bearer {values[token]}"})

        begun = time.monotonic()
        asked = []
        while (now := time.monotonic() - begun) < seconds:
            if len(asked) < now * 2 * RATE:
                asked.append(pool.submit(ask, "good"))
                if len(asked) % 10 == 0:
                    others[ask("other").status_code] += 1
            else:
                time.sleep(0.001)
        answers = [one.result() for one in asked]
        for answer in answers:
            statuses[answer.status_code] += 1
            if answer.status_code == 429 and not answer.headers.get("retry-after", "").isdigit():
                report.violation("a 429 does not say when to come again")
        if set(statuses) != {200, 429}:
            report.violation(f"at twice the load: {dict(statuses)}")
        if set(others) != {200}:
            report.violation(f"others are told {dict(others)} meanwhile")
        time.sleep(max(int(answer.headers.get("retry-after", 0)) for answer in answers))
        after = Counter(ask("good").status_code for _ in range(RATE // 2))
        if set(after) != {200}:
            report.violation(f"after it has waited: {dict(after)}")
    report.count("twice the load: requests", len(answers))
    report.count("twice the load: served", statuses[200])
    report.count("twice the load: told to wait", statuses[429])
    report.count("twice the load: served again after waiting", after[200])
