# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small stream job with the commands of examples/nexmark/nexmark.sh: a cluster on the loopback address,
and queries on it. $STREAM_PORT is its port.

usage: stream_job.py cluster DIRECTORY THREADS | ready THREADS | run QUERY RATE SECONDS
"""

from __future__ import annotations

import http.server
import json
import multiprocessing
import os
import pathlib
import sys
import time
import urllib.request

# Of bids (auction, price), as Nexmark's queries of the same names.
QUERIES = {
    "q0": lambda auction, price: (auction, price),
    "q1": lambda auction, price: (auction, 0.908 * price),
    "q2": lambda auction, price: (auction, price) if auction % 123 == 0 else None,
    "q5": lambda auction, price: hash((auction, price)) % 1000,
}
BATCHES_PER_SECOND = 50


def stream(share):
    """A slot's share of a query: bids at a rate, for a time. Returns (records, CPU seconds)."""
    query, rate, seconds = share
    started, done = time.monotonic(), 0
    while done < rate * seconds:
        for bid in range(done, done + max(1, round(rate / BATCHES_PER_SECOND))):
            QUERIES[query](bid % 10000, bid * 7 % 1000000)
            done += 1
        time.sleep(max(0, started + done / rate - time.monotonic()))
    return done, time.process_time()


class Requests(http.server.BaseHTTPRequestHandler):
    """/overview as Flink answers it; /QUERY/RATE/SECONDS runs a query in all slots."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.answer(self.path.strip("/").split("/"))).encode())

    def answer(self, words):
        slots = self.server.slots
        if words == ["overview"]:
            return {"slots-total": slots}
        query, rate, seconds = words[0], float(words[1]), float(words[2])
        started = time.monotonic()
        with multiprocessing.Pool(slots, maxtasksperchild=1) as pool:
            found = pool.map(stream, [(query, rate / slots, seconds)] * slots, chunksize=1)
        wall, records = time.monotonic() - started, sum(done for done, _used in found)
        cores = sum(used for _done, used in found) / wall
        return {
            "records": records,
            "seconds": wall,
            "records_per_second": records / wall,
            "cores": cores,
            "per_core": records / wall / cores,
        }

    def log_message(self, *_words):
        """Say nothing."""


def fetched(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['STREAM_PORT']}/{path}", timeout=60) as response:
        return response.read().decode()


def main(verb, *words):
    if verb == "cluster":
        directory, threads = words
        pathlib.Path(directory, "cpus").write_text(f"{sorted(os.sched_getaffinity(0))}\n", encoding="ascii")
        server = http.server.HTTPServer(("127.0.0.1", int(os.environ["STREAM_PORT"])), Requests)
        server.slots = int(threads)
        server.serve_forever()
    elif verb == "ready":
        try:
            sys.exit(json.loads(fetched("overview"))["slots-total"] != int(words[0]))
        except OSError:
            sys.exit(1)
    else:
        print(fetched("/".join(words)))


if __name__ == "__main__":
    main(*sys.argv[1:])
