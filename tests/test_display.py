"""Cards for notebooks: whatever is put in comes out as text, and only as text."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from lakeseal.display import Bar, Card, Grid, card, size
from lakeseal.errors import TableNotFound

ALLOWED = {"div", "b", "table", "tr", "th", "td", "svg", "rect", "title"}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&\u202e\x1b[31m"
texts = st.one_of(st.text(max_size=200), st.just(HOSTILE))


class Seen(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(html: str) -> Seen:
    found = Seen(html)
    assert set(found.tags) <= ALLOWED
    assert not {name for name in found.attributes if name.startswith("on") or name in ("href", "src")}
    assert found.open == []
    return found


@given(kind=texts, title=texts, cells=st.lists(texts, min_size=2, max_size=2), amount=st.integers(-5, 10**20))
def test_no_text_becomes_markup(kind: str, title: str, cells: list[str], amount: int) -> None:
    made = Card(
        kind=kind,
        title=title,
        facts=[(title, kind)],
        grids=[Grid(headings=tuple(cells), rows=[cells])],
        bars=[Bar(amount=amount, told=title), Bar(amount=1, told=kind)],
        bars_told=title,
    )
    seen(made.html())


def test_what_is_long_or_much_is_cut_and_said_to_be() -> None:
    made = Card(kind="Table", title="x" * 10_000, grids=[Grid(headings=("a",), rows=[[n] for n in range(1000)])])
    found = seen(made.html())
    assert len(made.html()) < 10_000
    assert "and 970 more" in found.text
    assert "…" in found.text


def test_what_turns_or_hides_text_is_replaced() -> None:
    found = seen(Card(kind="Table", title="evil\u202egnp.exe\x00").html())
    assert "\u202e" not in found.text
    assert "\x00" not in found.text
    assert "gnp.exe" in found.text


def test_bars_have_heights_between_the_least_and_the_most() -> None:
    html = Card(kind="T", title="t", bars=[Bar(amount=n, told=str(n)) for n in (0, 1, 100)]).html()
    assert [part.split('"')[0] for part in html.split('height="')[1:]] == ["36", "2", "4", "36"]


def test_an_error_becomes_a_card_that_says_it() -> None:
    def fails() -> Card:
        raise TableNotFound("There is no <table> here", table="file:///nowhere")

    found = seen(card("Table", "file:///nowhere", fails))
    assert "There is no <table> here" in found.text


def test_sizes_are_said_as_people_say_them() -> None:
    told = [size(n) for n in (0, 999, 1000, 1_234_567, 10**18)]
    assert told == ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "1,000,000.0 TB"]
