#!/usr/bin/env python3
# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks hosts for pages as many independent clients do: at times that do not depend on how fast the answers come (an
open loop), more and fewer with the time.

    examples/trial/load.py --rate 20 --swing 0.5 --day 300 --listen 9200 web1=http://192.0.2.1:8080/page

What the clients see is served for Prometheus at 127.0.0.1, at the port that is printed: page_arrivals_total,
page_lost_total, and the histogram page_seconds, all with the label host.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import itertools
import math
import random
import time
import urllib.parse

# Clients that wait for one host at most. One more goes away at once, as with a full queue anywhere: then as many pages
# are served as the host can.
WAITING = 64
# A client goes away after so many seconds.
TIMEOUT = 10.0
# Upper bounds of the histogram in seconds, a sixth apart.
BOUNDS = [0.001 * 1.15**step for step in range(70)]


class Clients:
    """The clients of one host, and what they have seen.

    Args:
        host: its name.
        url: the address of the page.
    """

    def __init__(self, host: str, url: str) -> None:
        self.host = host
        self._address = urllib.parse.urlsplit(url)
        self._waiting = 0
        self.arrivals = self.lost = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    async def page(self) -> None:
        """One client: it arrives, and waits for its page."""
        self.arrivals += 1
        if self._waiting >= WAITING:
            self.lost += 1
            return
        self._waiting += 1
        begun = time.monotonic()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._ask()
        except (OSError, TimeoutError, ValueError, IndexError):
            self.lost += 1
        else:
            took = time.monotonic() - begun
            self.seconds += took
            self.buckets[bisect.bisect_left(BOUNDS, took)] += 1
        finally:
            self._waiting -= 1

    async def _ask(self) -> None:
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        try:
            writer.write(f"GET {self._address.path or '/'} HTTP/1.0\r\nHost: {self._address.netloc}\r\n\r\n".encode())
            if int((await reader.readline()).split()[1]) != 200:
                raise ValueError("no page")
            await reader.read()
        finally:
            writer.close()

    def metrics(self) -> str:
        """Return the text for Prometheus."""
        counts = list(itertools.accumulate(self.buckets))
        lines = [
            f'page_arrivals_total{{host="{self.host}"}} {self.arrivals}',
            f'page_lost_total{{host="{self.host}"}} {self.lost}',
        ]
        lines += [
            f'page_seconds_bucket{{host="{self.host}",le="{bound:.6f}"}} {count}'
            for bound, count in zip(BOUNDS, counts)
        ]
        lines.append(f'page_seconds_bucket{{host="{self.host}",le="+Inf"}} {counts[-1]}')
        lines.append(
            f'page_seconds_sum{{host="{self.host}"}} {self.seconds:.6f}\npage_seconds_count{{host="{self.host}"}}'
            f" {counts[-1]}"
        )
        return "\n".join(lines) + "\n"


async def arrive(clients: Clients, rate: float, swing: float, day: float) -> None:
    """Let clients arrive one by one, at random, for ever.

    Args:
        clients: of one host.
        rate: how many a second, in the mean.
        swing: by which share of it the rate rises and falls.
        day: the seconds from one peak to the next.
    """
    pages: set[asyncio.Task[None]] = set()
    begun = due = time.monotonic()
    while True:
        now_rate = rate * (1 + swing * math.sin(2 * math.pi * (due - begun) / day))
        due += random.expovariate(now_rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(clients.page())
        pages.add(task)
        task.add_done_callback(pages.discard)


async def main() -> None:
    """Ask, and serve what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--rate", type=float, default=20, help="pages a second and host, in the mean (default: %(default)s)"
    )
    parser.add_argument(
        "--swing", type=float, default=0.5, help="the share by which that rises and falls (default: %(default)s)"
    )
    parser.add_argument(
        "--day", type=float, default=300, help="seconds from one peak to the next (default: %(default)s)"
    )
    parser.add_argument("--listen", type=int, default=0, help="port for Prometheus (default: a free one, printed)")
    parser.add_argument(
        "host", nargs="+", metavar="NAME=URL", help="a host's name in the inventory, and the address of its page"
    )
    arguments = parser.parse_args()
    everybody = [Clients(*one.split("=", 1)) for one in arguments.host]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(
            b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"
            + "".join(clients.metrics() for clients in everybody).encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", arguments.listen)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(*(arrive(clients, arguments.rate, arguments.swing, arguments.day) for clients in everybody))


if __name__ == "__main__":
    asyncio.run(main())
