"""Server-sent events: how the bytes were cut on their way changes nothing, and only CR, LF and CRLF end a line."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from turnwright.errors import ModelError
from turnwright_adapters._wire import ServerSentEvent, SseDecoder


def events_of(*pieces: bytes) -> list[tuple[str, str]]:
    """Decode *pieces* and the end of the stream, as (name, data)."""
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    return [(event.event, event.data.decode()) for event in events]


def bytewise(stream: bytes) -> list[bytes]:
    """Cut *stream* into single bytes."""
    return [stream[place : place + 1] for place in range(len(stream))]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """Cut *stream* at *places*, taken modulo its length."""
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


# Text of a line: everything but what ends one.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
lines = st.one_of(
    st.just(""),
    words.map(": {}".format),
    words.map("data:{}".format),
    words.map("data: {}".format),
    words.map("event: {}".format),
    words.map("id: {}".format),
    st.just("retry: 10"),
    st.just("data"),
    words.map("other: {}".format),
)
streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r", "\r\n"])), max_size=12).map(
    lambda pairs: "".join(line + end for line, end in pairs).encode()
)


def events_by_the_book(stream: str) -> list[tuple[str, str]]:
    """Decode a whole stream by the steps of the WHATWG, the slow and plain way; with the leniency of `close`."""
    events: list[tuple[str, str]] = []
    name, data = "", ""
    for line in [*stream.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if not line:
            if data.removesuffix("\n"):
                events.append((name, data.removesuffix("\n")))
            name, data = "", ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data += value + "\n"
            elif field == "event":
                name = value
    return events


@given(streams, st.lists(st.integers(0, 500), max_size=6), st.booleans())
def test_any_cut_of_any_stream_gives_the_events_of_the_book(stream: bytes, places: list[int], bom: bool) -> None:
    """Whatever the pieces, the events are those that the specification's own steps give."""
    stream = b"\xef\xbb\xbf" * bom + stream

    assert events_by_the_book(stream.decode()) == events_of(*cut(stream, places))
    assert events_by_the_book(stream.decode()) == events_of(*bytewise(stream))


@pytest.mark.case("sse-01")
def test_only_cr_and_lf_end_a_line() -> None:
    """U+2028, U+2029, U+0085 and a form feed inside a JSON string stay inside it."""
    text = "a\u2028b\u0085c\u2029\x0c\x1cd"
    stream = b"data: " + json.dumps(text, ensure_ascii=False).encode() + b"\n\n"

    assert [text] == [json.loads(data) for _, data in events_of(stream)]
    assert [text] == [json.loads(data) for _, data in events_of(*bytewise(stream))]


@pytest.mark.case("sse-02")
def test_a_character_cut_in_two_is_whole_again() -> None:
    """The bytes of one character may come in two pieces."""
    globe = "\N{EARTH GLOBE EUROPE-AFRICA}".encode()

    assert [("", "\N{EARTH GLOBE EUROPE-AFRICA}")] == events_of(b"data: " + globe[:2], globe[2:] + b"\n\n")


@pytest.mark.case("sse-04")
def test_an_event_is_given_with_its_empty_line_whatever_ends_lines() -> None:
    """No space after the colon and CRLF are as good, and nothing waits for the end of the stream."""
    decoder = SseDecoder()

    assert [ServerSentEvent("", b"hi")] == decoder.feed(b"data:hi\r\n\r\n")
    assert [ServerSentEvent("", b"[DONE]")] == decoder.feed(b"data:[DONE]\r\r")


@pytest.mark.case("sse-05")
def test_comments_and_events_without_data_give_nothing() -> None:
    """A comment, an event of an id alone and an empty event are no payloads; the last id is kept."""
    decoder = SseDecoder()
    stream = b': keepalive\n\nid: 7\n: ping\n\nevent: ping\ndata:\n\ndata: {"x":1}\n\n'

    assert [ServerSentEvent("", b'{"x":1}')] == decoder.feed(stream)
    assert "7" == decoder.last_event_id


@pytest.mark.case("sse-06")
def test_the_last_event_needs_no_empty_line() -> None:
    """A stream that ends right after its last event has told it."""
    assert [("", '{"n":1}'), ("", '{"n":2}')] == events_of(b'data: {"n":1}\n\ndata: {"n":2}')


def test_an_id_with_a_nul_is_ignored() -> None:
    """As the specification asks."""
    decoder = SseDecoder()
    decoder.feed(b"id: 3\n\nid: 4\0\n\n")

    assert "3" == decoder.last_event_id


@pytest.mark.parametrize(
    "pieces",
    [[b"data: " + b"x" * 101], [b"x" * 60, b"x" * 60], [b"data: " + b"x" * 60 + b"\n"] * 2, [b"data\n"] * 101],
    ids=["a line", "a line in pieces", "long lines", "empty lines"],
)
def test_an_event_has_a_largest_size(pieces: list[bytes]) -> None:
    """A server can't make the client hold more than one event's worth."""
    decoder = SseDecoder(largest=100)

    with pytest.raises(ModelError) as failure:
        [decoder.feed(piece) for piece in pieces]

    assert "malformed" == failure.value.kind
