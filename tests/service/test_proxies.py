"""Whom a request counts for: wrong tokens hold up nobody with a right one, and no header is believed but a trusted
proxy's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument
from lakeseal.service import tokens
from lakeseal.service.proxies import TrustedProxies

PROXIES = TrustedProxies(("10.0.0.0/8", "192.0.2.7", "fd00::/8"))


def client_of(peer: str, *said: str, proxies: TrustedProxies = PROXIES) -> str:
    return proxies.client_of(peer, [(b"x-forwarded-for", one.encode("latin-1")) for one in said])


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("203.0.113.5", ("198.51.100.1",), "203.0.113.5"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("1.1.1.1, 198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("1.1.1.1, 198.51.100.1, 10.9.9.9",), "198.51.100.1"),
        ("10.0.0.1", ("1.1.1.1", "198.51.100.1", "10.9.9.9"), "198.51.100.1"),
        ("192.0.2.7", ("10.1.1.1, 10.2.2.2",), "10.1.1.1"),
        ("10.0.0.1", ("198.51.100.1, nobody, 10.9.9.9",), "10.9.9.9"),
        ("10.0.0.1", ("<script>",), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1:4711",), "198.51.100.1"),
        ("10.0.0.1", ("[2001:db8::1]:4711",), "2001:db8::1"),
        ("10.0.0.1", ("2001:db8::1, fd00::9",), "2001:db8::1"),
        ("10.0.0.1", ("fe80::1%eth0",), "10.0.0.1"),
        ("::ffff:10.0.0.1", ("::ffff:198.51.100.1",), "198.51.100.1"),
        ("fd00::1", ("198.51.100.1",), "198.51.100.1"),
        ("", ("198.51.100.1",), ""),
        ("10.0.0.1", ("1.1.1.1," + "10.0.0.1," * 100 + "10.0.0.1",), "10.0.0.1"),
    ],
)
def test_the_rightmost_address_that_is_no_trusted_proxys_is_the_clients(
    peer: str, said: tuple[str, ...], client: str
) -> None:
    assert client_of(peer, *said) == client
    assert client_of(peer, *said, proxies=TrustedProxies()) == peer


@given(spoofed=st.text(st.characters(max_codepoint=255), max_size=60))
def test_nothing_that_a_client_writes_changes_who_it_is(spoofed: str) -> None:
    """The proxy appends the address that it sees."""
    assert client_of("10.0.0.1", f"{spoofed}, 198.51.100.1") == "198.51.100.1"
    assert client_of("10.0.0.1", spoofed, "198.51.100.1") == "198.51.100.1"
    assert client_of("198.51.100.1", spoofed) == "198.51.100.1"


@pytest.mark.parametrize("text", ["", "proxy", "10.0.0.0/33", "10.0.0.1/8", "*", "10.0.0.1:80"])
def test_what_names_no_network_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InvalidArgument):
        TrustedProxies((text,))


def wrong(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer lks_{number:012x}_{'A' * 43}"}


@contextmanager
def flood(client: Any, **headers: str) -> Any:
    """Wrong tokens, as fast as one can, until it is over."""
    over, counts = threading.Event(), []

    def run(worker: int) -> None:
        with httpx.Client(base_url=client.base_url, trust_env=False, verify=False, timeout=60) as own:
            number = 0
            while not over.is_set():
                number += 1
                status = own.get("/v1/owner", headers={**wrong(worker * 10**6 + number), **headers}).status_code
                assert status in (401, 429), status
            counts.append(number)

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(run, worker) for worker in range(8)]
        try:
            yield counts
        finally:
            over.set()
            for one in done:
                one.result()


def test_a_valid_token_gets_in_while_wrong_ones_flood_its_address(inside) -> None:
    """Also one that was never seen before, and one that was seen long ago."""
    with inside(rate=0) as client:
        old, unseen = client.login("reader"), [client.login("reader") for _ in range(30)]
        with flood(client) as counts:
            for login in unseen:
                assert client.get("/v1/owner", headers=login).status_code == 200
                assert client.get("/v1/owner", headers=old).status_code == 200
            assert client.get("/v1/owner", headers=wrong(1)).status_code == 429
        assert sum(counts) > 100


def test_wrong_tokens_behind_a_proxy_count_for_those_who_send_them(inside) -> None:
    with inside(rate=0, trusted_proxies=("127.0.0.1",)) as client:
        bad = {"X-Forwarded-For": "203.0.113.66"}
        statuses = [client.get("/v1/owner", headers={**wrong(n), **bad}).status_code for n in range(40)]
        assert {401, 429} == set(statuses)
        other = {"X-Forwarded-For": "203.0.113.66, 203.0.113.9"}
        assert client.get("/v1/owner", headers={**wrong(1), **other}).status_code == 401
    with inside(rate=0) as client:
        statuses = [
            client.get("/v1/owner", headers={**wrong(n), "X-Forwarded-For": f"203.0.113.{n}"}).status_code
            for n in range(40)
        ]
        assert {401, 429} == set(statuses), "who is not trusted does not choose an address"


def test_many_tokens_are_one_question_to_the_ledger(inside) -> None:
    with inside(rate=0) as client:
        texts = [client.login("reader")["Authorization"].removeprefix("Bearer ") for _ in range(3)]
        asked = 0
        read = client.service.ledger.read

        here = threading.get_ident()

        def counted(do: Any) -> Any:
            nonlocal asked
            asked += threading.get_ident() == here  # the service asks for reasons of its own, too
            return read(do)

        client.service.ledger.read = counted
        many = [f"lks_{number:012x}_{'A' * 43}" for number in range(1200)]
        changed = texts[0][:-1] + ("A" if texts[0][-1] != "A" else "B")
        found = tokens.find_all(client.service.ledger, [*many, *texts, changed, "x", "lks_"])
        assert sorted(found) == sorted(texts)
        assert asked == 1
