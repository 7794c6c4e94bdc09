"""Hands e-mails in over HTTP, typed both ways: `Client` for plain code and threads, `AsyncClient` for asyncio.

    with Client("http://127.0.0.1:8025", key="sk_…") as staffetta:
        receipt = staffetta.send(from_="shop@example.com", to="ada@example.com", subject="Hi", body_text="Hi!")

Every call may be repeated safely, and is: a key is made for it and kept over its retries, so that a lost
connection or a restart of the server neither loses the e-mail nor sends it twice.
"""

from staffetta.client.answers import Attempt, Email, HistoryEntry, Receipt, Recipient
from staffetta.client.asynchronous import AsyncClient
from staffetta.client.messages import Attachment, Message
from staffetta.client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Attachment",
    "Attempt",
    "Client",
    "Email",
    "HistoryEntry",
    "Message",
    "Receipt",
    "Recipient",
]
