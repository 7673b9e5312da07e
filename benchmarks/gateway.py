"""The LLM gateway under load: added latency, lost calls and miscounted tokens.

    python benchmarks/gateway.py [--seconds 60] [--concurrency 64] [--events 20] [--gap 0.1] [--prompt-kib 20]

A scripted upstream in a process of its own streams chat completions: `events` events, `gap` seconds apart, with
token counts that follow from a number in the prompt, so that each call has its own right answer. Each of
`concurrency` workers makes the same call twice at the same time, once straight to the upstream and once through
the gateway (alternating which starts first), so that both meet the same busy machine; the added latency is the
difference within such a pair. So there are `concurrency` streams through the gateway and as many beside it.

Printed: calls a second through the gateway; added latency to the first event and to the end of a call, p50 and
p99; for every event the time from the upstream's write to the client's read, both ways; processor time of each
process; calls lost (no whole answer, or not in the record as such); calls whose recorded tokens are not the
upstream's. Exit code 1 if a call is lost or miscounted or the p50 of the first event is above the goal.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import psutil
from aiohttp import web
from pydantic import SecretStr

from agent2.llm.gateway.recording import ExchangeOutcome, read_body, read_exchanges
from agent2.llm.gateway.settings import GatewaySettings
from agent2.llm.gateway.supervisor import Gateway
from agent2.llm.records import ProviderEndpoint, TokenCounts, WireProtocol

GOAL_S = 0.005
DUMMY = "sk-agent2-benchmark"
NUMBER = re.compile(rb"call number (\d+)\.")


def tokens_of(number: int) -> TokenCounts:
    """The right counts of a call."""
    n_input, written = 1000 + number % 9973, 10 + number % 499
    return TokenCounts(input=n_input, output=written, cached_input=n_input // 3, reasoning=written // 2)


async def serve_upstream(n_events: int, gap_s: float) -> None:
    """The scripted upstream; prints its port and serves until killed."""

    async def handle(request: web.Request) -> web.StreamResponse:
        match = NUMBER.search(await request.read())
        assert match is not None
        tokens = tokens_of(int(match.group(1)))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for index in range(n_events):
            if index:
                await asyncio.sleep(gap_s)
            delta = {"content": "some words "}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            await _write(response, {"id": "c", "sent": time.monotonic(), "choices": [choice]})
        usage = {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached_input},
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        }
        await _write(response, {"id": "c", "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def _write(response: web.StreamResponse, event: object) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@dataclass(slots=True)
class Timing:
    """One call as the client saw it, in seconds."""

    first: float = 0.0
    total: float = 0.0
    transit: list[float] = field(default_factory=list)
    is_whole: bool = False


async def call(session: aiohttp.ClientSession, url: str, body: bytes) -> Timing:
    """Make one streaming call."""
    timing = Timing()
    began = time.monotonic()
    headers = {"authorization": f"Bearer {DUMMY}", "content-type": "application/json"}
    try:
        async with session.post(url, data=body, headers=headers) as response:
            async for line in response.content:
                now = time.monotonic()
                if line.startswith(b'data: {"id": "c", "sent"'):
                    timing.first = timing.first or now - began
                    timing.transit.append(now - json.loads(line[6:])["sent"])
                elif line == b"data: [DONE]\n":
                    timing.is_whole = True
    except aiohttp.ClientError as error:
        print(f"a call failed: {error}", file=sys.stderr)
    timing.total = time.monotonic() - began
    return timing


@dataclass(slots=True)
class Result:
    """What the run brought."""

    pairs: list[tuple[Timing, Timing]] = field(default_factory=list)
    """Through the gateway, straight."""
    seconds: float = 0.0


async def run_load(arguments: argparse.Namespace, port: int, settings: GatewaySettings) -> Result:
    """All workers, for the given time."""
    result = Result()
    rng = random.Random(0)
    filler = " ".join(str(rng.random()) for _ in range(arguments.prompt_kib * 1024 // 20))
    numbers = iter(range(1, 10**9))
    straight_url = f"http://127.0.0.1:{port}/v1/chat/completions"
    path = str(settings.socket)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as straight,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path, limit=0)) as through,
    ):
        began = time.monotonic()

        async def worker(index: int) -> None:
            await asyncio.sleep(index * arguments.events * arguments.gap / arguments.concurrency)
            while time.monotonic() - began < arguments.seconds:
                number = next(numbers)
                content = f"call number {number}. {filler}"
                message = {"role": "user", "content": content}
                fields = {"model": "m", "stream": True, "messages": [message]}
                body = json.dumps({**fields, "stream_options": {"include_usage": True}}).encode()
                calls = [
                    call(through, "http://gateway/v1/chat/completions", body),
                    call(straight, straight_url, body),
                ]
                if number % 2:
                    direct, gateway = await asyncio.gather(*reversed(calls))
                else:
                    gateway, direct = await asyncio.gather(*calls)
                result.pairs.append((gateway, direct))

        await asyncio.gather(*(worker(index) for index in range(arguments.concurrency)))
        result.seconds = time.monotonic() - began
    return result


@contextlib.contextmanager
def upstream_process(arguments: argparse.Namespace) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The upstream and its port."""
    command = [sys.executable, __file__, "--upstream", "--events", str(arguments.events), "--gap", str(arguments.gap)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def quantiles(values: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return float(p50), float(p99)


def report(result: Result, record: Path, seconds_of: dict[str, float]) -> bool:
    """Print the figures; true if the goals are met."""
    gateways, directs = zip(*result.pairs, strict=True)
    n_calls = len(gateways)
    print(f"{n_calls} calls through the gateway in {result.seconds:.1f} s: {n_calls / result.seconds:.1f} requests/s")
    first = quantiles([via_gateway.first - direct.first for via_gateway, direct in result.pairs])
    total = quantiles([via_gateway.total - direct.total for via_gateway, direct in result.pairs])
    print(f"added latency, first event: p50 {first[0] * 1e3:.2f} ms, p99 {first[1] * 1e3:.2f} ms")
    print(f"added latency, whole call:  p50 {total[0] * 1e3:.2f} ms, p99 {total[1] * 1e3:.2f} ms")
    for name, timings in (("gateway ", gateways), ("straight", directs)):
        p50, p99 = quantiles([transit_s for timing in timings for transit_s in timing.transit])
        first50, first99 = quantiles([timing.first for timing in timings])
        print(
            f"{name}: write to read of an event p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms; "
            f"first event after p50 {first50 * 1e3:.2f} ms, p99 {first99 * 1e3:.2f} ms"
        )
    shares = ", ".join(f"{name} {100 * used / result.seconds:.0f}%" for name, used in seconds_of.items())
    print(f"processor time, of one core: {shares}")
    exchanges = read_exchanges(record)
    n_whole = sum(exchange.outcome is ExchangeOutcome.OK for exchange in exchanges)
    n_lost = n_calls - min(n_whole, sum(timing.is_whole for timing in gateways))
    n_miscounted = 0
    for exchange in exchanges:
        match = NUMBER.search(read_body(exchange.request)) if exchange.request else None
        n_miscounted += match is None or exchange.tokens != tokens_of(int(match.group(1)))
    print(f"lost {n_lost}, miscounted {n_miscounted} (of {len(exchanges)} recorded calls)")
    return not n_lost and not n_miscounted and first[0] <= GOAL_S


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--gap", type=float, default=0.1)
    parser.add_argument("--prompt-kib", type=int, default=20)
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.upstream:
        asyncio.run(serve_upstream(arguments.events, arguments.gap))
        return 0
    rate = arguments.concurrency / (arguments.events * arguments.gap)
    print(
        f"offered: {arguments.concurrency} streams through the gateway and {arguments.concurrency} straight, about "
        f"{rate:.0f} calls/s and {rate * arguments.events:.0f} events/s each way, prompts of {arguments.prompt_kib} "
        f"KiB; load average before {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores"
    )
    with tempfile.TemporaryDirectory() as folder, upstream_process(arguments) as (upstream, port):
        endpoint = ProviderEndpoint(
            protocol=WireProtocol.OPENAI_CHAT, base_url=f"http://127.0.0.1:{port}", api_key=SecretStr("sk-benchmark")
        )
        settings = GatewaySettings(
            socket=Path(folder) / "llm.sock",
            record=Path(folder) / "llm",
            endpoints=(endpoint,),
            model="m",
            dummy_key=DUMMY,
        )
        with Gateway.start(settings) as gateway:
            processes = {
                "gateway": psutil.Process(gateway.pid),
                "upstream": psutil.Process(upstream.pid),
                "client": psutil.Process(),
            }
            before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
            result = asyncio.run(run_load(arguments, port, settings))
            used = {name: sum(process.cpu_times()[:2]) - before[name] for name, process in processes.items()}
        return 0 if report(result, settings.record, used) else 1


if __name__ == "__main__":
    sys.exit(main())
