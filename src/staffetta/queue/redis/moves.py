"""The moves as this process makes them: requests into a script's arguments, its answer into theirs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from staffetta.mail.message import Job
from staffetta.queue.redis import wire
from staffetta.queue.redis.link import Move

_ONE = struct.Struct(">d")


class Moves:
    """`figures_of` names what a company is met with: weight, rate and the rate's duration, packed."""

    def __init__(self, figures_of: Callable[[str], bytes]) -> None:
        self._figures_of = figures_of
        self.offer = Move("offer", self._pack_jobs, _places_to_jobs, together=True)
        self.postpone = Move("postpone", self._pack_jobs, _nothing, together=True)
        self.settle = Move("settle", _pack_ids, _nothing, together=True)
        self.full = Move("full", self._pack_full, _nothing, together=True)
        self.room = Move("room", self._pack_names, _one_each, together=True)
        self.stock = Move("stock", self._pack_stock, _only)
        self.block = Move("block", self._pack_block, _only)
        self.weigh = Move("weigh", self._pack_first, _only)
        self.take = Move("take", _plain, _only)
        self.doze = Move("doze", _plain, _only)
        self.extend = Move("extend", _pack_extend, _only)
        self.bury = Move("bury", _plain, _only)
        self.depth = Move("depth", _plain, _only)
        self.hungry = Move("hungry", _plain, _only)
        self.figures = Move("figures", _plain, _only)

    def _companies(self, names: Sequence[str]) -> list[Any]:
        args: list[Any] = [len(names)]
        for name in names:
            args += (wire.encode_name(name), self._figures_of(name))
        return args

    def _pack_jobs(self, requests: Sequence[Sequence[Job]]) -> list[Any]:
        places: dict[str, int] = {}
        texts: list[bytes] = []
        for jobs in requests:
            for job in jobs:
                place = places.get(job.company_id)
                if place is None:
                    place = places[job.company_id] = len(places) + 1
                texts.append(wire.encode_job(job, place))
        return [*self._companies(list(places)), *texts]

    def _pack_full(self, requests: Sequence[tuple[str, bool]]) -> list[Any]:
        return [*self._companies([name for name, _ in requests]), *("01"[more] for _, more in requests)]

    def _pack_names(self, requests: Sequence[str]) -> list[Any]:
        return self._companies(requests)

    def _pack_first(self, requests: Sequence[Sequence[str]]) -> list[Any]:
        return self._companies(requests[0])

    def _pack_stock(self, requests: Sequence[tuple[str, Sequence[Job], Job | None, int]]) -> list[Any]:
        name, jobs, after, more = requests[0]
        texts = (wire.encode_job(job, 1) for job in jobs)
        return [*self._companies([name]), "012"[more], wire.encode_after(after), *texts]

    def _pack_block(self, requests: Sequence[tuple[Sequence[str], float]]) -> list[Any]:
        names, until = requests[0]
        return [*self._companies(names), _ONE.pack(until)]


def _pack_ids(requests: Sequence[Sequence[tuple[str, int]]]) -> list[Any]:
    return [number.to_bytes(4, "big") + wire.encode_id(name) for ids in requests for name, number in ids]


def _pack_extend(requests: Sequence[tuple[float, Sequence[str]]]) -> list[Any]:
    until, ids = requests[0]
    return [_ONE.pack(until), *(wire.encode_id(name) for name in ids)]


def _plain(requests: Sequence[list[Any]]) -> list[Any]:
    return requests[0]


def _only(answer: Any, requests: Sequence[Any]) -> Sequence[Any]:
    del requests
    return [answer]


def _one_each(answer: Any, requests: Sequence[Any]) -> Sequence[Any]:
    del requests
    return list(answer)


def _nothing(answer: Any, requests: Sequence[Any]) -> Sequence[Any]:
    del answer
    return [None] * len(requests)


def _places_to_jobs(answer: Sequence[int], requests: Sequence[Sequence[Job]]) -> Sequence[list[Job]]:
    """Places count from 1 through all requests."""
    if not answer:
        return [[] for _ in requests]
    refused = set(answer)
    found: list[list[Job]] = []
    before = 0
    for jobs in requests:
        found.append([job for place, job in enumerate(jobs, before + 1) if place in refused])
        before += len(jobs)
    return found
