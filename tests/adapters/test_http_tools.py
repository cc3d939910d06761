"""Tools behind HTTP: where no request goes, and what the model is told."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from ipaddress import ip_address

import httpx
import pytest
from attrs import frozen

from tests.harness.playing import heard, of
from turnwright.errors import PortError
from turnwright.harness import ToolResultEvent, create_agent, define_tool, script_client
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_adapters.http_tools import BlockedAddress, HttpEndpoint

PRIVATE = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1"),
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("fd00:ec2::254", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe"),
    *("2001:0:7f00:1::", "2001:0:808:808::5601:5601", "::127.0.0.1", "fe80::5efe:7f00:1", "2606:4700::5efe:a9fe:a9fe"),
    *("::ffff:0:127.0.0.1", "100::1", "::10.1.2.3", "fec0::1", "168.63.129.16"),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


class Web:
    """A network in which names have the addresses that a test gives them, and every server answers by *answer*."""

    def __init__(self, answer: httpx.Response | list[httpx.Response], **names: Sequence[str]) -> None:
        self.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.asked: list[httpx.Request] = []
        self.resolved: list[str] = []
        self._answers = answer if isinstance(answer, list) else [answer]
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._handle))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        return self.names[host]

    def endpoint(self, url: str, **options: object) -> HttpEndpoint:
        return HttpEndpoint(url, client=self.client, resolve=self.resolve, **options)  # type: ignore[arg-type]


@frozen
class Query:
    """What is asked for."""

    q: str


def ok() -> httpx.Response:
    """A good answer."""
    return httpx.Response(200, json={"ok": True})


@pytest.mark.promise("A-03")
@pytest.mark.parametrize("address", PRIVATE)
async def test_no_request_goes_to_an_address_that_is_not_public(address: str) -> None:
    """Neither as its only address nor beside a public one, in whatever form it is written."""
    web = Web(ok(), a_example=[address], b_example=["8.8.8.8", address])

    for host in ("a.example", "b.example"):
        with pytest.raises(BlockedAddress):
            await web.endpoint(f"https://{host}/x").call({}, key="k")

    assert [] == web.asked


@pytest.mark.promise("A-03")
@pytest.mark.parametrize("address", PUBLIC)
async def test_a_request_goes_to_the_address_that_was_looked_at(address: str) -> None:
    """The name is resolved once, so it cannot change between the look and the request; it stays in host and SNI."""
    web = Web(ok(), a_example=[address])

    assert {"ok": True} == await web.endpoint("https://a.example:8443/x").call({"q": 1}, key="k-1")

    (request,) = web.asked
    assert ["a.example"] == web.resolved
    assert ip_address(address) == ip_address(request.url.host)
    assert "a.example:8443" == request.headers["host"]
    assert ("a.example", "k-1") == (request.extensions["sni_hostname"], request.headers["idempotency-key"])
    assert b'{"q": 1}' == request.content


@pytest.mark.promise("A-03")
@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "169.254.170.23"),
        *("168.63.129.16", "192.0.0.192", "fd20:ce::254"),
    ],
)
async def test_metadata_is_refused_even_where_private_is_allowed(address: str) -> None:
    """Services of one's own are one thing, the credentials of the machine another."""
    web = Web(ok(), a_example=[address], own_example=["10.0.0.1"])

    assert {"ok": True} == await web.endpoint("http://own.example/", private=True).call({}, key="k")
    with pytest.raises(BlockedAddress):
        await web.endpoint("http://a.example/", private=True).call({}, key="k")


@pytest.mark.promise("A-03")
@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "file:///etc/passwd", "//a.example", "https://user:secret@a.example/", "gopher://a:70/"]
)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    """Where it is declared, and without repeating a secret."""
    with pytest.raises(BlockedAddress) as caught:
        HttpEndpoint(url)

    assert "secret" not in str(caught.value)


@pytest.mark.promise("A-03")
async def test_each_hop_is_looked_at_and_credentials_stay_with_their_host() -> None:
    """A redirect inwards is refused; to another host it goes without them; too many are an error."""
    there = httpx.Response(307, headers={"location": "https://b.example/y"})
    names = {"a_example": ["8.8.8.8"], "b_example": ["1.1.1.1"], "c_example": ["10.0.0.1"]}
    secrets = {"Authorization": "Bearer t", "Cookie": "c=1", "X-Project": "p", "Accept": "text/own"}

    web = Web([there, ok()], **names)
    assert {"ok": True} == await web.endpoint("https://a.example/", headers=secrets).call({"q": 1}, key="k")
    assert ["Bearer t", None] == [each.headers.get("authorization") for each in web.asked]
    assert ["p", None] == [each.headers.get("x-project") for each in web.asked]
    assert [None, "k"] == [web.asked[1].headers.get(name) for name in ("cookie", "idempotency-key")]
    assert "text/own" not in web.asked[1].headers["accept"]
    assert b'{"q": 1}' == web.asked[1].content

    inwards = Web(httpx.Response(302, headers={"location": "http://c.example/"}), **names)
    with pytest.raises(BlockedAddress):
        await inwards.endpoint("https://a.example/").call({}, key="k")
    assert 1 == len(inwards.asked)

    around = Web(httpx.Response(302, headers={"location": "/again"}), **names)
    with pytest.raises(PortError, match="redirects more than 5 times"):
        await around.endpoint("https://a.example/").call({}, key="k")
    assert 6 == len(around.asked)


@pytest.mark.promise("A-03")
@pytest.mark.parametrize("elsewhere", ["https://b.example/y", "http://a.example/y", "https://a.example:8443/y"])
async def test_what_a_client_says_of_itself_stays_with_its_host(elsewhere: str) -> None:
    """Its headers, its cookies, its password and its parameters: a redirect takes none of them along, also not back."""
    back = httpx.Response(307, headers={"location": "https://a.example/z", "set-cookie": "n=2"})
    web = Web(
        [httpx.Response(307, headers={"location": elsewhere, "set-cookie": "s=1"}), back, ok()],
        a_example=["8.8.8.8"],
        b_example=["8.8.8.8"],
    )
    web.client.headers["x-token"] = "t"
    web.client.auth = ("user", "password")
    web.client.params = {"key": "k"}

    assert {"ok": True} == await web.endpoint("https://a.example/").call({}, key="k")

    names = ("x-token", "authorization", "cookie")
    said = [[*sorted({*names} & {*each.headers}), *each.url.params] for each in web.asked]
    assert [["authorization", "x-token", "key"], [], []] == said


@pytest.mark.promise("A-03")
async def test_an_answer_that_is_compressed_is_refused_before_it_is_unpacked() -> None:
    """A few bytes may stand for many millions, and be in memory before anybody can count them."""
    body = gzip.compress(b"x" * 10_000_000)
    reply = RawReply(body, headers={"content-type": "text/plain", "content-encoding": "gzip"})
    async with ByteServer([reply]) as server:
        with pytest.raises(PortError, match="'gzip'"):
            await HttpEndpoint(f"{server.url}/tool", private=True).call({}, key="k")


@pytest.mark.promise("A-03")
async def test_every_failure_is_a_result_that_the_model_sees() -> None:
    """A bad status, too long an answer and a blocked address are error results, and the turn goes on."""
    names = {"a_example": ["8.8.8.8"], "c_example": ["10.0.0.1"]}
    web = Web([httpx.Response(500, text="sorry"), httpx.Response(200, text="x" * 99)], **names)
    urls = {"bad": "https://a.example/", "long": "https://a.example/", "inward": "https://c.example/"}
    agent = create_agent(
        model=script_client([*[{"tool_use": [{"name": name, "input": {"q": name}}]} for name in urls], "ok"]),
        tools=[
            define_tool(name=name, description="Ask.", input_schema=Query, endpoint=web.endpoint(url, most=50))
            for name, url in urls.items()
        ],
    )

    events = await heard(agent)

    told = [(each.is_error, each.output) for each in of(events, ToolResultEvent)]
    assert (True, "a.example answered 500: sorry") == told[0]
    assert (True, "a.example answered with more than 50 bytes") == told[1]
    assert told[2][0] and "where no request may go" in told[2][1]
    assert "done" == events[-1].type
    assert [b'{"q": "bad"}', b'{"q": "long"}'] == [each.content for each in web.asked]


@pytest.mark.promise("A-03")
async def test_the_input_of_a_get_is_its_query() -> None:
    """Text as it is, all else as JSON; an answer that is no JSON is text."""
    web = Web(httpx.Response(200, text="plain"), a_example=["8.8.8.8"])

    assert "plain" == await web.endpoint("https://a.example/x?k=1", method="get").call({"q": "a b", "n": [1]}, key="k")

    assert {"k": "1", "q": "a b", "n": "[1]"} == dict(web.asked[0].url.params)
    assert b"" == web.asked[0].content


@pytest.mark.promise("A-03")
async def test_an_endpoint_of_ones_own_answers_over_a_real_socket() -> None:
    """With private addresses allowed, a loopback server is asked under its own name."""
    reply = RawReply(b'{"n":1}', headers={"content-type": "application/json"})
    async with ByteServer([reply]) as server:
        answer = await HttpEndpoint(f"{server.url}/tool", private=True).call({"q": 1}, key="k")

        (seen,) = server.requests
    assert {"n": 1} == answer
    assert ("POST", "/tool", {"q": 1}) == (seen.method, seen.path, seen.json)
    assert server.url.removeprefix("http://") == seen.headers["host"]
