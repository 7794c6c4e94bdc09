"""The shared store on MySQL or MariaDB: the seed's two tables, columns and tables of ours beside them.

Many workers and other programs work on it at once. Every claim is taken with SKIP LOCKED, every move compared on a
locked row, and the server's clock says what is due and who is dead.
"""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.errors import StoreError
from staffetta.store.mysql import address, faults, schema
from staffetta.store.mysql.examination import Examination
from staffetta.store.mysql.lanes import Lanes
from staffetta.store.mysql.listings import Listings
from staffetta.store.mysql.lives import Lives
from staffetta.store.mysql.moving import Moving
from staffetta.store.mysql.parts import Parts
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.reminders import Reminders
from staffetta.store.mysql.retirement import Retirement
from staffetta.store.mysql.session import Session, check_server, connect
from staffetta.store.mysql.steering import Steering
from staffetta.store.mysql.upkeep import Upkeep
from staffetta.store.mysql.visitors import Owners, Visitors


class MysqlStore(Examination, Visitors, Lives, Upkeep, Reminders, Retirement, Steering, Listings, Moving):
    """One database. A new one is made into a store by `migrate`, and so is one that has the seed's tables."""

    resolution_ms = 1
    has_clock = True
    owned = False
    keeps_version = True

    def __init__(self, url: str, *, parted_after_ms: int | None = None, owners: Owners | None = None) -> None:
        """`parted_after_ms`: workers keep queues of their own and part the work among those that were heard of within
        this time; None: they share a queue. `owners`: who is told of e-mails that other programs ended."""
        self._address = address.read(url)
        self._owners = owners
        Visitors.__init__(self)
        Reminders.__init__(self)
        Upkeep.__init__(self)
        Listings.__init__(self)
        self._pool = Pool(self._address)
        self._parts = Parts(self._pool, parted_after_ms)
        self._lanes = Lanes(self._pool)
        self.server = ""
        """Name and version of what answers, once it is open."""

    async def open(self) -> None:
        try:
            await self._pool.open()
            self.server = await self._pool.read(lambda session: check_server(session, self._address))
            await self._pool.read(lambda session: schema.check(session, self._address))
            await self._begin_news()
        except BaseException as error:
            await self._pool.close()
            if isinstance(error, Exception) and not isinstance(error, StoreError):
                told = faults.translate(error, self._address)
                if told is not error:
                    raise told from error
            raise
        self._lanes.start()

    async def migrate(self) -> Sequence[str]:
        """On a connection of its own, without limits of time: a large table takes as long as it takes."""
        session: Session | None = None
        try:
            session = await connect(self._address)
            await check_server(session, self._address)
            return await schema.migrate(session, self._address)
        except Exception as error:
            told = faults.translate(error, self._address)
            if told is error:
                raise
            raise told from error
        finally:
            if session is not None:
                await session.close()

    async def close(self) -> None:
        await self._lanes.stop()
        await self._pool.close()


__all__ = ["MysqlStore", "Owners"]
