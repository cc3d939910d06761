"""A support desk: it reads a mailbox, looks orders up, pays refunds that somebody approves, and drafts the replies.

    turnwright run examples/support_desk.py examples/inbox.mbox

answers the first three mails with the model that ships for trying things out, `--all` all of them, and
`-m openai:gpt-4.1-mini` takes another model. The resolutions are written to resolutions.jsonl in the current directory.

Each mail is one run in small steps, because a small model is good at small steps: classify the mail, look the order
up, refund it where the class allows that, answer. `plan` says which step comes next: the model fills in, never steers.
"""

from __future__ import annotations

import json
import mailbox
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from email import message_from_bytes, policy
from email.utils import parseaddr
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import attrs
from attrs import frozen
from msgspec import Meta

from turnwright import AgentDefinition, Completed, Outcome, RunCall, Suspended, TurnView, tool

# --- what the desk reads and writes


@frozen
class Mail:
    """A customer's mail."""

    email: str
    subject: str
    body: str


Category = Literal[
    "broken_item",
    "wrong_item",
    "charged_twice",
    "where_is_my_order",
    "cancel_order",
    "change_address",
    "invoice_needed",
    "product_question",
    "angry_customer",
    "thank_you",
    "advertisement",
]

Action = Literal["refund", "replace", "cancel", "change_address", "send_invoice", "answer", "escalate", "ignore"]


@frozen
class Resolution:
    """What becomes of a mail. *action* is for the desk to carry out, but for a refund, which is paid by then."""

    category: Category
    order_id: str | None
    action: Action
    reply: Annotated[str, Meta(max_length=320)]


# --- the shop

SHOP = sqlite3.connect(":memory:", check_same_thread=False)
"""The orders, in a fresh database each time, so that the example can be run again. A shop's own would be a file."""

SHOP.executescript(Path(__file__).with_name("orders.sql").read_text(encoding="utf-8"))
SHOP.row_factory = sqlite3.Row


DRAFTS: dict[Category, Resolution] = {
    draft.category: draft
    for draft in [
        Resolution(
            "broken_item",
            None,
            "refund",
            "We are sorry that it arrived broken. We have refunded the full price to you.",
        ),
        Resolution("wrong_item", None, "replace", "We are sorry for the mix-up. We send you the right item today."),
        Resolution(
            "charged_twice",
            None,
            "refund",
            "We are sorry that you paid twice. We have refunded the second payment to you.",
        ),
        Resolution(
            "where_is_my_order", None, "answer", "Say where the order is and when it arrives, as in its status."
        ),
        Resolution("cancel_order", None, "cancel", "We have cancelled your order."),
        Resolution("change_address", None, "change_address", "We send your order to the new address."),
        Resolution("invoice_needed", None, "send_invoice", "We send you the invoice by mail today."),
        Resolution(
            "product_question", None, "answer", "Thank you for your question. A colleague will answer it today."
        ),
        Resolution("angry_customer", None, "escalate", "We are very sorry. Our manager will call you today."),
        Resolution("thank_you", None, "answer", "Thank you for your kind words. You made our day."),
        Resolution("advertisement", None, "ignore", ""),
    ]
}
NEED_NO_ORDER = {"product_question", "angry_customer", "thank_you", "advertisement"}


@tool(replay="safe")
def classify(category: Category) -> Resolution:
    """Say what kind of mail it is; gives the draft of a resolution for such mails."""
    return DRAFTS[category]


@frozen
class Order:
    """An order as the desk sees it."""

    order_id: str
    item: str
    total_cents: int
    payments: int
    status: str


@tool(replay="safe")
def lookup_order(order_id: str | None, customer_email: str) -> Order:
    """Find a customer's order by its number; the latest one if the customer has none of that number."""
    row = SHOP.execute(
        "select order_id, item, total_cents, payments, status from orders where customer_email = ?"
        " order by order_id = ? desc, order_id desc",
        (customer_email, order_id),
    ).fetchone()
    if row is None:
        raise LookupError("there is no such order: answer, and ask for the order number")
    return Order(**row)


@tool(approval="required")
def refund(order_id: str, cents: int) -> str:
    """Pay money back for an order."""
    with SHOP:
        order = SHOP.execute("select total_cents from orders where order_id = ?", (order_id,)).fetchone()
        if order is None or not 0 < cents <= order["total_cents"]:
            raise ValueError(f"order {order_id} has no {cents} cents to pay back")
        SHOP.execute("insert into refunds values (?, ?)", (order_id, cents))
    return "done"


# --- what the model is told

INSTRUCTION = """\
You are the support desk of Harbour & Pine, a shop for kitchen things. You handle one customer mail in small steps. \
First classify it by what the customer wants, then do what the rule for such mails says.

Categories:
- broken_item: an item arrived broken
- wrong_item: the parcel held another item than the one ordered
- charged_twice: the customer paid twice
- where_is_my_order: the customer asks where the parcel is
- cancel_order: the customer wants to cancel an order
- change_address: the order shall go to another address
- invoice_needed: the customer needs an invoice
- product_question: a question about a product before buying
- angry_customer: the customer is angry about our service
- thank_you: the customer says thank you
- advertisement: somebody who is no customer wants to sell something to us

Examples:

Subject: lamp
The lamp of order 2001 has a crack.
From: ben@example.com
{"tool": "classify", "arguments": {"category": "broken_item"}}
{"tool": "lookup_order", "arguments": {"order_id": "2001", "customer_email": "ben@example.com"}}
{"tool": "refund", "arguments": {"order_id": "2001", "cents": 1950}}
{"answer": {"category": "broken_item", "order_id": "2001", "action": "refund", \
"reply": "We are sorry that the lamp arrived broken. We have refunded the full price to you."}}

Subject: new flat
Please send order 2004 to 5 Hill Road, I have moved.
From: ida@example.org
{"tool": "classify", "arguments": {"category": "change_address"}}
{"tool": "lookup_order", "arguments": {"order_id": "2004", "customer_email": "ida@example.org"}}
{"answer": {"category": "change_address", "order_id": "2004", "action": "change_address", \
"reply": "We send the clock to 5 Hill Road."}}

Subject: size
How wide is the round table?
From: ron@example.net
{"tool": "classify", "arguments": {"category": "product_question"}}
{"answer": {"category": "product_question", "order_id": null, "action": "answer", \
"reply": "Thank you for your question about the table. A colleague will answer it today."}}

Subject: delivery
When does my parcel come?
{"tool": "classify", "arguments": {"category": "where_is_my_order"}}

Subject: chairs
I ordered black chairs and got white ones.
{"tool": "classify", "arguments": {"category": "wrong_item"}}

Subject: bank
You took the money for order 2002 two times.
{"tool": "classify", "arguments": {"category": "charged_twice"}}

Subject: order 2003
I don't want the clock any more, please cancel it.
{"tool": "classify", "arguments": {"category": "cancel_order"}}

Subject: VAT
Can I have a bill for order 2005?
{"tool": "classify", "arguments": {"category": "invoice_needed"}}

Subject: Shame on you
I called four times and nobody helped me. I am furious.
{"tool": "classify", "arguments": {"category": "angry_customer"}}

Subject: thanks
The vase is so pretty and it came so soon!
{"tool": "classify", "arguments": {"category": "thank_you"}}

Subject: Cheap ink!!!
Buy 10 cartridges for $9 today only, click here.
{"tool": "classify", "arguments": {"category": "advertisement"}}
"""


# --- what happens when


def plan(turn: TurnView) -> str:
    """Say which tool must be called next, or that it is time to answer."""
    calls = {call.name: call for call in turn.calls}
    match calls.get("classify"):
        case RunCall(arguments={"category": category}, is_error=False):
            rule = DRAFTS[category]
        case _:
            return "classify"
    if category not in NEED_NO_ORDER and "lookup_order" not in calls:
        return "lookup_order"
    if rule.action == "refund" and "refund" not in calls and not calls["lookup_order"].is_error:
        return "refund"
    return "none"


def fits_what_was_done(resolution: Resolution, calls: Sequence[RunCall]) -> list[str]:
    """Object to a resolution that says anything else than the calls, above all to a refund that was not made."""
    done = {call.name: call.output for call in calls if not call.is_error}
    rule, order = done["classify"], done.get("lookup_order", {"order_id": None})
    assert isinstance(rule, dict)
    assert isinstance(order, dict)
    objections = [
        f"{name} must be {json.dumps(value)}"
        for name, value in [("category", rule["category"]), ("order_id", order["order_id"])]
        if getattr(resolution, name) != value
    ]
    refunded = "refund" in done
    if rule["action"] == "refund" and not refunded and resolution.action == "refund":
        objections.append('action must be "escalate"')
    if resolution.action == "refund" and rule["action"] != "refund":
        objections.append(f'action must be "{rule["action"]}"')
    if not refunded and re.search(r"refund|money back|pa(id|y) back|reimburs", resolution.reply, re.IGNORECASE):
        objections.append('reply must be "We are sorry. A colleague will write to you today."')
    return objections


definition = AgentDefinition(
    name="support desk",
    instruction=INSTRUCTION,
    tools=[classify, lookup_order, refund],
    input=Mail,
    output=Resolution,
    render=lambda mail: f"Subject: {mail.subject}\n{mail.body}\nFrom: {mail.email}",
    tool_choice=plan,
    check_output=[fits_what_was_done],
    options={"temperature": 0},
)


# --- what the command line asks of this module


def inputs(argument: str, *, all: bool) -> Iterable[tuple[str, Mail]]:  # noqa: A002 - the flag's own name
    """Read the mailbox that INPUT names: the first three mails, or *all* of them."""
    with Path(argument).open("rb"):  # a missing file is told better by this than by the mailbox
        box = mailbox.mbox(argument, create=False)
    with closing(box):
        for stored in islice(box, None if all else 3):
            message = message_from_bytes(stored.as_bytes(), policy=policy.default)
            name, email = parseaddr(message["From"])
            subject = str(message["Subject"])
            text = message.get_body(["plain"])
            yield f"{name}: {subject}", Mail(email, subject, text.get_content().strip() if text else "")


def write(argument: str, results: Sequence[tuple[str, Outcome[Resolution]]]) -> Path:
    """Write one line of JSON a mail."""
    path = Path("resolutions.jsonl")
    lines = [json.dumps({"mail": label, **told(outcome)}) + "\n" for label, outcome in results]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def told(outcome: Outcome[Resolution]) -> dict[str, object]:
    """Say how a mail stands."""
    match outcome:
        case Completed(output=resolution):
            return {"outcome": "completed", **attrs.asdict(resolution)}
        case Suspended(reason=reason, pending=pending):
            return {
                "outcome": "suspended",
                "reason": reason,
                "pending": [[each.tool, each.arguments] for each in pending],
            }
        case other:
            return {"outcome": type(other).__name__.lower()}
