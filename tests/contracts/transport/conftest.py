"""Every transport under one suite, against other sides of ours and of others. Ids are the other sides' names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from contracts import transports
from contracts.transports import Dumped, FarSide
from doubles.mouth import LOOPS
from doubles.postfix import Postfix, postfix
from doubles.ses import SesServer
from staffetta.sink import SinkServer

OF_OTHERS = ("smtp-sink", "postfix-starttls", "postfix-smtps", "ses-moto")
NAMES = ("scripted-sink", "aiosmtpd", "ses", "sink", *OF_OTHERS)


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return LOOPS


@pytest.fixture(scope="session")
def smtp_sink() -> Iterator[tuple[int, Path]]:
    with transports.smtp_sink() as running:
        yield running


@pytest.fixture(scope="session")
def relay(smtp_sink: tuple[int, Path]) -> Iterator[Postfix]:
    """A Postfix that passes on to `smtp-sink`."""
    with postfix(smtp_sink[0]) as running:
        yield running


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with transports.moto() as url:
        yield url


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.service, pytest.mark.xdist_group("relays")])
        if name in OF_OTHERS
        else name
        for name in NAMES
    ]
)
async def far(request: pytest.FixtureRequest) -> AsyncIterator[FarSide]:
    """An other side, empty."""
    name: str = request.param
    if name == "scripted-sink":
        async with SinkServer(keep=True) as sink:
            yield transports.Scripted(sink)
    elif name == "aiosmtpd":
        async with transports.oracle() as oracle:
            yield oracle
    elif name == "ses":
        async with SesServer() as server:
            yield transports.Ses(server)
    elif name == "sink":
        yield transports.Nowhere([])
    elif name == "ses-moto":
        async with transports.at_moto(request.getfixturevalue("moto")) as moto:
            yield moto
    else:
        port, folder = request.getfixturevalue("smtp_sink")
        if name == "smtp-sink":
            make = transports.at_smtp_sink(port)
        else:
            make = transports.at_postfix(request.getfixturevalue("relay"), implicit=name == "postfix-smtps")
        yield Dumped(make, folder, frozenset(path.name for path in folder.iterdir()))
