# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A target that begins anew between what is written and what is flushed: interop/bindings kills it
when this says "killed?", and answers when it is there again.

    outage.py URL kept|lost
"""
import asyncio
import os
import sys

import lunwire.aio


async def main(url, wanted):
    async with await lunwire.aio.connect(url) as disk:
        told = asyncio.Queue()
        disk.watch(told.put_nowait)
        data = os.urandom(65536)
        await disk.write(0, data)
        print("killed?", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        # It waits for the session that comes.
        read = await disk.read(0, 65536)
        news = {}
        awaited = {lunwire.What.BACK} | ({lunwire.What.MAY_HAVE_LOST} if wanted == "lost" else set())
        while not awaited <= set(news):
            event = await told.get()
            # A session that stays away tells so with each attempt.
            assert event.what is lunwire.What.LOST or event.what not in news, event
            news[event.what] = event
        news.pop(lunwire.What.ATTENTION, None)
        assert news.pop(lunwire.What.LOST).error.strerror and not news.pop(lunwire.What.BACK).error
        assert set(news) <= {lunwire.What.MAY_HAVE_LOST}, news
        for event in news.values():
            assert event.error.code is lunwire.Code.WRITES_LOST and event.error.strerror, event
        try:
            await disk.flush()
            ended = "kept"
        except lunwire.Error as error:
            assert error.code is lunwire.Code.WRITES_LOST, error
            ended = "lost"
        assert ended == wanted, f"{ended} in place of {wanted}"
        # Another disk knows nothing of what this one wrote.
        async with await lunwire.aio.connect(url) as other:
            await other.write(0, data)
            await other.flush()
            assert await other.read(0, 65536) == data
        assert wanted == "lost" or read == data


asyncio.run(main(*sys.argv[1:]))
