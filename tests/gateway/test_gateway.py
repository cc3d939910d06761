"""A gateway over several models is a model that keeps to its limits, whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, get_args

import pytest
from attrs import evolve as replace
from hypothesis import given, settings, strategies as st

from tests.driver.virtual import leftovers, run
from tests.gateway.routes import OK, Played, Step, Viewer, asked, fail, last, over, told
from turnwright import AgentDefinition, Completed, Ports, Suspended, run_agent, stream_agent, tool
from turnwright.deltas import AttemptReset, TextDelta
from turnwright.errors import ModelError, ModelErrorKind
from turnwright.gateway import FALLBACK, Backoff, Gateway, Route
from turnwright.lifecycle import MessageEnd, MessageStart
from turnwright.messages import AssistantMessage, Usage
from turnwright.ports import Model, ModelRequest
from turnwright.testing import ScriptedModel, call, explore_crashes, text
from turnwright_adapters.sqlite import SqliteState

KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)

errors = st.builds(
    ModelError,
    st.sampled_from(KINDS),
    st.just("scripted"),
    retryable=st.booleans(),
    retry_after=st.none() | st.sampled_from([0.0, 0.3, 5.0, 1e9, float("nan"), float("inf"), -1.0]),
    dispatched=st.booleans(),
)
steps = st.builds(
    Step,
    st.lists(st.sampled_from(["x", "yy", ""]), max_size=3).map(tuple),
    st.none() | errors | st.sampled_from([RuntimeError("bug"), TimeoutError(), asyncio.CancelledError()]),
    st.sampled_from([0.0, 0.0, 0.5, 3.0, 100.0]),
)
routes = st.lists(
    st.tuples(
        st.lists(steps, min_size=1, max_size=4),
        st.integers(1, 3),
        st.none() | st.sampled_from([1.0, 10.0]),
        st.integers(1, 4),
        st.none() | st.integers(1, 3),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.promise("N-21")
@pytest.mark.case("ret-03", "ret-09")
@settings(max_examples=1000)
@given(
    routes,
    st.integers(1, 6),
    st.none() | st.sampled_from([0.0, 0.7, 20.0]),
    st.floats(0, 1),
    st.lists(st.none() | st.sampled_from([0.0, 0.25, 2.0, 50.0]), min_size=1, max_size=3),
)
def test_no_schedule_breaks_the_limits(
    plan: Sequence[tuple[list[Step], int, float | None, int, int | None]],
    attempts: int,
    timeout: float | None,
    chance: float,
    cancelled: list[float | None],
) -> None:
    """Never two answers glued, never more tries than allowed, never beyond the deadline, nothing left behind.

    Some requests are cancelled after a while.
    """
    requests = len(cancelled)
    models = [Played(*script) for script, *_ in plan]
    gateway = over(
        *[
            Route("abc"[place], models[place], attempts=most, timeout=limit, failures=failures, concurrent=together)
            for place, (_, most, limit, failures, together) in enumerate(plan)
        ],
        attempts=attempts,
        chance=chance,
    )

    async def one(patience: float | None) -> None:
        viewer, began, came = Viewer(), asyncio.get_running_loop().time(), None
        task = asyncio.ensure_future(gateway.complete(asked(timeout=timeout, on_delta=viewer)))
        await asyncio.wait([task], timeout=patience)
        task.cancel()
        with suppress(ModelError, asyncio.CancelledError):
            came = await task
        assert came is None or came.text == viewer.shown
        assert timeout is None or asyncio.get_running_loop().time() - began <= timeout + 0.4

    async def all_of_them() -> None:
        await asyncio.gather(*[one(patience) for patience in cancelled])
        assert not leftovers()

    run(all_of_them())
    assert [0] * len(models) == [lane._taken for lane in gateway._lanes]
    assert requests * attempts >= sum([model.tries for model in models])
    for model, (_, most, _, _, together) in zip(models, plan, strict=True):
        assert requests * most >= model.tries
        assert (together or requests) >= model.most
        assert model.running == 0


@pytest.mark.promise("N-21")
@pytest.mark.parametrize("kind", KINDS)
def test_what_may_be_otherwise_elsewhere_is_asked_elsewhere(kind: ModelErrorKind) -> None:
    """And what lies in the request is refused at once, with its own kind."""
    first, second = Played(fail(kind, retryable=False)), Played(OK)
    gateway = over(first, second)

    if kind in FALLBACK:
        assert "ok" == run(gateway.complete(asked())).text
        assert [("a", "failed", kind), ("b", "answered", None)] == told(gateway)
    else:
        with pytest.raises(ModelError) as raised:
            run(gateway.complete(asked()))
        assert (kind, 1, 0) == (raised.value.kind, first.tries, second.tries)


@pytest.mark.promise("N-21")
def test_when_nothing_helps_the_last_failure_is_told() -> None:
    """Its kind, status and time to wait, and not that of the gateway."""
    gateway = over(Played(fail("overloaded", status=503)), Played(fail("rate_limit", status=429, retry_after=90.0)))

    with pytest.raises(ModelError) as raised:
        run(gateway.complete(asked()))

    assert ("rate_limit", 429, 90.0, True) == (
        raised.value.kind,
        raised.value.status,
        raised.value.retry_after,
        raised.value.retryable,
    )
    assert [("a", "failed", "overloaded")] * 2 + [("b", "failed", "rate_limit")] == told(gateway)


@pytest.mark.case("ret-03")
def test_no_backoff_is_longer_than_the_longest() -> None:
    """The dice make it shorter, never longer."""
    model = Played(*[fail("overloaded")] * 5, OK)
    gateway = over(Route("a", model, attempts=6, failures=10), backoff=Backoff(first=1.0, longest=3.0))

    run(gateway.complete(asked()))

    assert [1, 2, 3, 3, 3] == model.pauses


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 100), st.floats(0, 100))
def test_a_backoff_is_never_outside_its_bounds(tries: int, chance: float, first: float, longest: float) -> None:
    """However many tries, and whatever the dice show."""
    assert 0 <= Backoff(first, longest).delay(tries, chance) <= longest


def test_the_server_says_how_long_to_wait() -> None:
    """Its word replaces the backoff; a wait above the patience sends the request to the next route at once."""
    first, second = Played(fail("rate_limit", retry_after=7.0), fail("rate_limit", retry_after=61.0)), Played(OK)
    gateway = over(Route("a", first, attempts=3), Route("b", second))

    run(gateway.complete(asked()))

    assert [7] == first.pauses
    assert 0 == round(second.at[0] - first.at[1])


def test_others_wait_too_when_a_server_asks_for_it() -> None:
    """A second request does not hammer a route that asked for a pause."""
    first, second = Played(fail("rate_limit", retry_after=30.0, retryable=False), OK), Played(OK)
    gateway = over(first, Route("b", second))

    async def twice() -> None:
        await gateway.complete(asked())
        await gateway.complete(asked())

    run(twice())
    assert (1, 2) == (first.tries, second.tries)


def test_no_wait_reaches_beyond_the_deadline() -> None:
    """Where the time would run out before the next try, it is not waited for: the next route is asked at once."""
    first, second = Played(fail("overloaded", retry_after=9.0)), Played(OK)

    answer = run(over(first, second).complete(asked(timeout=5.0)))

    assert ("ok", 1) == (answer.text, first.tries)


def test_a_slow_route_leaves_time_for_the_next() -> None:
    """A route's own timeout ends its try, and the model is told how long it has."""
    first, second = Played(Step(seconds=100.0)), Played(OK)

    run(over(Route("a", first, timeout=2.0, attempts=1), second).complete(asked(timeout=5.0)))

    assert [2, 3] == [round(each.requests[0].timeout or 0) for each in (first, second)]


@pytest.mark.promise("N-21")
def test_a_lost_try_is_taken_back_before_the_next_speaks() -> None:
    """The viewer's screen holds one answer, and every delta names the engine's own turn and attempt."""
    viewer = Viewer()
    gateway = over(Played(fail("connection", "Once upon")), Played(Step(("In the ", "beginning"))))

    run(gateway.complete(asked(on_delta=viewer)))

    assert [
        TextDelta(3, 2, "Once upon"),
        AttemptReset(3, 2),
        TextDelta(3, 2, "Once upon"),
        AttemptReset(3, 2),
        TextDelta(3, 2, "In the "),
        TextDelta(3, 2, "beginning"),
    ] == viewer.deltas
    assert "In the beginning" == viewer.shown


def test_nothing_is_taken_back_that_nobody_saw() -> None:
    """And what was seen of the last try stays: only the engine knows whether there is another."""
    silent, viewer = Viewer(), Viewer()

    run(over(Played(fail("overloaded")), Played(OK)).complete(asked(on_delta=silent)))
    with pytest.raises(ModelError):
        run(over(Played(fail("invalid_request", "half"))).complete(asked(on_delta=viewer)))

    assert [TextDelta(3, 2, "ok")] == silent.deltas
    assert "half" == viewer.shown


def test_a_late_word_of_a_lost_try_is_not_heard() -> None:
    """A model that goes on speaking after it has failed speaks to nobody."""
    spoken: list[ModelRequest] = []

    class Late:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            spoken.append(request)
            raise ModelError("connection", "gone")

    viewer = Viewer()
    second = Played(OK)
    gateway = over(Route("a", Late()), second)

    run(gateway.complete(asked(on_delta=viewer)))
    assert spoken[0].on_delta is not None
    spoken[0].on_delta(TextDelta(3, 2, "late"))

    assert "ok" == viewer.shown


def test_without_a_viewer_no_model_is_asked_to_stream() -> None:
    """A request that nobody watches reaches the models as it came."""
    model = Played(OK)

    run(over(model).complete(asked()))

    assert [asked()] == model.requests
    assert model.requests[0].on_delta is None


def test_a_route_has_options_of_its_own() -> None:
    """What one model calls otherwise, or does not know; the request itself stays as it was."""
    first, second = Played(fail("quota", retryable=False)), Played(OK)
    request = replace(asked(), options={"thinking": {"type": "enabled"}, "temperature": 0.5})
    gateway = over(first, Route("b", second, options={"thinking": None, "reasoning_effort": "low"}))

    run(gateway.complete(request))

    assert {"thinking": {"type": "enabled"}, "temperature": 0.5} == first.requests[0].options == request.options
    assert {"thinking": None, "temperature": 0.5, "reasoning_effort": "low"} == second.requests[0].options


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2), (-5, 1), (100, 3), ("many", 3)])
def test_a_request_may_cap_its_retries(retries: object, tries: int) -> None:
    """It can't raise what the gateway allows."""
    model = Played(fail("overloaded"))
    request = replace(asked(), options={"max_retries": retries})

    with pytest.raises(ModelError):
        run(over(Route("a", model, attempts=9), attempts=3).complete(request))

    assert tries == model.tries


@pytest.mark.case("usg-08")
def test_failed_tries_count() -> None:
    """As requests, and with the tokens that their providers told before they failed."""
    first = Played(fail("connection", "x", retryable=False, usage=Usage(input_tokens=10)))
    second = Played(Step(usage=Usage(input_tokens=3, output_tokens=2)))

    answer = run(over(first, second).complete(asked(on_delta=Viewer())))

    assert Usage(requests=2, input_tokens=13, output_tokens=2) == answer.usage


@pytest.mark.case("usg-08")
async def test_what_failed_tries_used_is_in_the_usage_of_the_run() -> None:
    """Also when no route answered; and what was seen of the last try is kept with it."""
    talker = AgentDefinition("talker", "Talk.")
    model = over(*[Played(fail("connection", "x", retryable=False, usage=Usage(input_tokens=10)))] * 2)

    async with stream_agent(talker, "hi", Ports(model=model)) as stream:
        *_, outcome = [item async for item in stream]

    assert isinstance(outcome, Suspended)
    assert (2, 20) == (outcome.usage.requests, outcome.usage.input_tokens)


def test_no_try_starts_once_the_tokens_are_used_up() -> None:
    """The budget of one request bounds what failing costs."""
    first = Played(fail("connection", "x", usage=Usage(input_tokens=60)))
    second = Played(OK)

    with pytest.raises(ModelError, match="connection"):
        run(over(Route("a", first, attempts=5), second, tokens=100).complete(asked(on_delta=Viewer())))

    assert (2, 0) == (first.tries, second.tries)


@pytest.mark.case("ret-07")
def test_waiting_blocks_nobody_and_can_be_cancelled() -> None:
    """The loop goes on during a backoff, and a cancelled backoff is over at once."""
    model = Played(fail("rate_limit", retry_after=0.3), OK)
    gateway = over(model)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def scenario() -> float:
        ticking = asyncio.ensure_future(tick())
        await gateway.complete(asked())
        ticking.cancel()
        again = asyncio.ensure_future(over(Played(fail("rate_limit", retry_after=9.0))).complete(asked()))
        await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        again.cancel()
        await asyncio.wait([ticking, again])
        assert again.cancelled()
        return asyncio.get_running_loop().time() - began

    assert run(scenario()) < 0.05
    assert ticks >= 20


def test_a_cancelled_try_is_closed_and_no_other_begins() -> None:
    """The cancellation passes through the model before it leaves, and says nothing against the route."""
    model, other = Played(Step(seconds=9.0)), Played(OK)
    gateway = over(Route("a", model, failures=1, concurrent=1), other)

    async def scenario() -> None:
        task = asyncio.ensure_future(gateway.complete(asked()))
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not leftovers()

    run(scenario())
    assert (0, 0, "cancelled") == (model.running, other.tries, last(gateway).outcome)
    assert "ok" == run(gateway.complete(asked())).text


def test_a_sick_route_is_left_alone_and_then_probed() -> None:
    """Open after three failures, one probe after the rest, closed again by its answer."""
    sick, well = Played(*[fail("overloaded", retryable=False)] * 4, OK), Played(OK)
    gateway = over(Route("a", sick, failures=3, rest=30.0), Route("b", well))

    async def scenario() -> list[int]:
        tries = []
        for pause in (0.0, 0.0, 0.0, 0.0, 31.0, 0.0, 31.0, 0.0):
            await asyncio.sleep(pause)
            await gateway.complete(asked())
            tries.append(sick.tries)
        return tries

    assert [1, 2, 3, 3, 4, 4, 5, 6] == run(scenario())


def test_one_request_at_a_time_probes() -> None:
    """The others go elsewhere until it is known how the probe went."""
    sick, well = Played(fail("overloaded", retryable=False), Step(seconds=5.0)), Played(OK)
    gateway = over(Route("a", sick, failures=1, rest=10.0), Route("b", well))

    async def scenario() -> None:
        await gateway.complete(asked())
        await asyncio.sleep(11.0)
        await asyncio.gather(*[gateway.complete(asked()) for _ in range(5)])

    run(scenario())
    assert (2, 5) == (sick.tries, well.tries)


def test_a_probe_that_was_cancelled_leaves_room_for_the_next() -> None:
    """Nothing was learnt from it."""
    sick, well = Played(fail("overloaded", retryable=False), Step(seconds=5.0), OK), Played(OK)
    gateway = over(Route("a", sick, failures=1, rest=10.0), Route("b", well))

    async def scenario() -> None:
        await gateway.complete(asked())
        await asyncio.sleep(11.0)
        probe = asyncio.ensure_future(gateway.complete(asked()))
        await asyncio.sleep(1.0)
        probe.cancel()
        await asyncio.wait([probe])
        await gateway.complete(asked())

    run(scenario())
    assert (3, 1) == (sick.tries, well.tries)


def test_when_every_circuit_is_open_the_caller_learns_when_to_come_back() -> None:
    """Nothing was sent, so nothing can have been charged."""
    gateway = over(Route("a", Played(fail("overloaded", retryable=False)), failures=1, rest=30.0))

    async def scenario() -> ModelError:
        for _ in range(2):
            with pytest.raises(ModelError) as raised:
                await gateway.complete(asked())
        return raised.value

    error = run(scenario())
    assert ("overloaded", True, False, 30) == (
        error.kind,
        error.retryable,
        error.dispatched,
        round(error.retry_after or 0),
    )
    assert ("a", "refused", "open") == told(gateway)[-1]


def test_no_more_at_a_time_than_allowed() -> None:
    """In order of arrival; who would wait too long goes to the next route."""
    first, second = Played(Step(seconds=4.0)), Played(OK)
    gateway = over(Route("a", first, concurrent=2, patience=5.0), Route("b", second))

    async def scenario() -> None:
        await asyncio.gather(*[gateway.complete(asked()) for _ in range(7)])

    run(scenario())
    assert (2, 4, 3) == (first.most, first.tries, second.tries)


def test_no_more_in_a_minute_than_allowed() -> None:
    """Whatever the minute begins with."""
    model = Played(OK)
    gateway = over(Route("a", model, per_minute=3, patience=3600.0))

    async def scenario() -> None:
        await asyncio.gather(*[gateway.complete(asked()) for _ in range(8)])

    run(scenario())
    assert [0, 0, 60, 0, 0, 60, 0] == model.pauses


def test_a_cancelled_wait_for_the_minute_takes_no_place() -> None:
    """Whoever comes after finds it free."""
    model = Played(OK)
    gateway = over(Route("a", model, per_minute=1, concurrent=1, patience=300.0))

    async def scenario() -> str:
        await gateway.complete(asked())
        waiting = asyncio.ensure_future(gateway.complete(asked()))
        await asyncio.sleep(30.0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return (await gateway.complete(asked())).text

    assert "ok" == run(scenario())


def test_a_cancelled_wait_for_a_place_takes_none() -> None:
    """The places of those who went away are free."""
    model = Played(Step(seconds=2.0))
    gateway = over(Route("a", model, concurrent=1, patience=100.0))

    async def scenario() -> None:
        tasks = [asyncio.ensure_future(gateway.complete(asked())) for _ in range(6)]
        await asyncio.sleep(1.0)
        for task in tasks[1:5]:
            task.cancel()
        await asyncio.sleep(0.999)
        await asyncio.wait(tasks)

    run(scenario())
    assert (1, 2) == (model.most, model.tries)


def test_a_place_given_to_one_who_goes_away_goes_to_the_next() -> None:
    """Also in the very moment in which the place becomes free."""
    model = Played(Step(seconds=1.0))
    tasks: list[asyncio.Future[AssistantMessage]] = []
    gateway = over(
        Route("a", model, concurrent=1, patience=100.0),
        # The place is given in this step of the loop, and taken in the next, after the cancellation.
        on_attempt=lambda _: asyncio.get_running_loop().call_soon(tasks[1].cancel),
    )

    async def scenario() -> None:
        tasks.extend([asyncio.ensure_future(gateway.complete(asked())) for _ in range(3)])
        await asyncio.wait(tasks)
        assert [False, True, False] == [task.cancelled() for task in tasks]

    run(scenario())
    assert 2 == model.tries


def test_a_route_that_breaks_its_promise_is_a_route_that_failed() -> None:
    """Nonsense, an exception of its own, a cancellation that nobody asked for: the next one answers."""

    class Nonsense:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            return "hello"  # type: ignore[return-value]

    broken: list[Model] = [
        Nonsense(),
        Played(Step(error=ValueError("sk-secret"))),
        Played(Step(error=asyncio.CancelledError())),
    ]
    for model, kind in zip(broken, ["malformed", "internal", "cancelled"], strict=True):
        gateway = over(Route("a", model, attempts=1), Played(OK))

        assert "ok" == run(gateway.complete(asked())).text
        assert ("a", "failed", kind) == told(gateway)[0]


def test_an_answer_may_be_checked_before_it_is_believed() -> None:
    """What the check objects to counts as malformed."""
    nope = Played(Step(("nope",), usage=Usage(input_tokens=7)))
    gateway = over(nope, Played(OK), check=lambda answer: "" if answer.text == "ok" else "not ok")

    answer = run(gateway.complete(asked()))

    assert "ok" == answer.text
    assert [("a", "failed", "malformed")] * 2 == told(gateway)[:2]
    assert 14 == answer.usage.input_tokens  # what was paid for and refused counts


def test_what_is_told_of_a_try_holds_no_content_and_is_bounded() -> None:
    """Names, codes and counts; and a hook that fails changes nothing."""
    gateway = over(Played(Step(("secret",))), on_attempt=lambda _: 1 / 0)

    async def scenario() -> None:
        for _ in range(300):
            await gateway.complete(asked(on_delta=Viewer()))

    run(scenario())
    assert 256 == len(gateway.recent)
    assert "secret" not in repr(gateway.recent)


def test_a_gateway_may_be_a_route() -> None:
    """It is a model port: what the inner one takes back stays taken back, and its requests count."""
    viewer = Viewer()
    inner = over(Played(fail("connection", "lost", retryable=False)), Played(fail("overloaded", "half"), OK))

    answer = run(over(Route("inner", inner)).complete(asked(on_delta=viewer)))

    assert ("ok", "ok", 3) == (answer.text, viewer.shown, answer.usage.requests)
    assert isinstance(inner, Model)


def test_one_gateway_serves_one_loop_after_another() -> None:
    """Also where requests had to wait for their places, and some were cut off by the end of their loop."""
    model = Played(Step(seconds=1.0))
    gateway = over(Route("a", model, concurrent=1, patience=100.0))

    async def crowd(patience: float | None) -> int:
        tasks = [asyncio.ensure_future(gateway.complete(asked())) for _ in range(3)]
        done, _ = await asyncio.wait(tasks, timeout=patience)
        return len(done)

    assert [1, 3, 0, 3] == [run(crowd(patience)) for patience in (1.5, None, 0.5, None)]


def test_an_entered_gateway_closes_its_models() -> None:
    """All of them, also if one cannot be opened."""
    log: list[str] = []

    class Opened(Played):
        async def __aenter__(self) -> Self:
            log.append("open")
            return self

        async def __aexit__(self, *error: object) -> None:
            log.append("closed")

    class Stuck(Opened):
        async def __aenter__(self) -> Self:
            raise RuntimeError

    async def scenario() -> None:
        async with over(Opened(OK), Played(OK), Opened(OK)) as gateway:
            await gateway.complete(asked())
        with pytest.raises(RuntimeError):
            async with over(Opened(OK), Stuck(OK)):
                pass

    run(scenario())
    assert ["open", "open", "closed", "closed", "open", "closed"] == log


@pytest.mark.parametrize(
    "build",
    [
        lambda: Gateway([]),
        lambda: Gateway([Route("a", Played(OK)), Route("a", Played(OK))]),
        lambda: Gateway([Route("a", Played(OK))], attempts=0),
        lambda: Route("", Played(OK)),
        lambda: Route("a", Played(OK), attempts=0),
        lambda: Route("a", Played(OK), timeout=-1.0),
        lambda: Route("a", object()),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused_at_once(build: object) -> None:
    """Before any request."""
    with pytest.raises(ValueError, match=r"route|gateway"):
        build()  # type: ignore[operator]


@pytest.mark.promise("N-21")
async def test_a_run_goes_through_a_gateway() -> None:
    """And suspends with the real last kind when no route answers."""
    talker = AgentDefinition("talker", "Talk.")
    down = ScriptedModel([ModelError("quota", "no credit")])
    gateway = Gateway([Route("a", down), Route("b", ScriptedModel([text("hello")]))])

    outcome = await run_agent(talker, "hi", Ports(model=gateway))
    assert isinstance(outcome, Completed) and outcome.output == "hello"

    paused = await run_agent(talker, "hi", Ports(model=Gateway([Route("a", down)])))
    assert isinstance(paused, Suspended)
    assert ("model", "quota") == (paused.reason, paused.detail)


@pytest.mark.promise("N-21")
async def test_every_try_that_was_seen_is_a_message_of_its_own() -> None:
    """Who watches the run sees the lost one end, and the next begin, before its pieces come."""
    talker = AgentDefinition("talker", "Talk.")
    model = over(Played(fail("connection", "lost", retryable=False)), Played(Step(("well", " said"))))
    seen = []

    async with stream_agent(talker, "hi", Ports(model=model)) as stream:
        async for item in stream:
            match item:
                case TextDelta():
                    seen.append(item.text)
                case MessageStart(role="assistant"):
                    seen.append("start")
                case MessageEnd(role="assistant"):
                    seen.append(item.message.text if isinstance(item.message, AssistantMessage) else item.error)
                case _:
                    pass

    assert ["start", "lost", "lost", "start", "well", " said", "well said"] == seen


def test_a_run_over_a_gateway_survives_every_crash(tmp_path: Path) -> None:
    """Wherever it is cut, and whichever route answered: a fresh engine with a fresh gateway goes on."""

    @tool
    async def pay(cents: int) -> str:
        """Pay money back."""
        return "paid"

    payer = AgentDefinition("payer", "Refund.", tools=[pay])
    down = ModelError("overloaded", "down")

    def ports(folder: Path) -> Ports:
        first = ScriptedModel([down, text("done")])
        second = ScriptedModel([call("pay", cents=5), down])
        return Ports(model=Gateway([Route("a", first), Route("b", second)]), state=SqliteState(folder / "runs.db"))

    report = explore_crashes(payer, "refund 5", ports)

    assert [] == report.violations
