"""Attacks on the gateway: a body that an agent sends, and what a lenient provider behind it would make of it.

The control sends the same body through a filter that one would write in an afternoon: it parses the body, looks for
what is forbidden, and passes the agent's bytes on.
"""

import gzip
import json
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from agent2.llm.gateway.settings import GatewaySettings
from gateway_fakes import FakeProvider, gateway_settings, running
from red_team.frame import Move, Outcome
from red_team.scene import Scene

WEB = "https://example.org/what-the-agent-tells"
Reads = Callable[[bytes], str]
"""What a provider does outside the sandbox for a body, in words; empty: nothing."""


@contextmanager
def gateway(scene: Scene, **fields: Any) -> Iterator[tuple[FakeProvider, httpx.Client, GatewaySettings]]:
    """A real gateway in front of a provider on loopback."""
    folder = scene.root / f"g{secrets.token_hex(3)}"
    folder.mkdir()
    provider = FakeProvider()
    provider.start()
    try:
        settings = gateway_settings(folder, provider.url, **fields)
        with running(settings) as (_, client):
            yield provider, client, settings
    finally:
        provider.stop()


def body_moves(
    body: bytes, reads: Reads, path: str = "/v1/chat/completions", headers: Mapping[str, str] | None = None
) -> tuple[Move, Move]:
    """`attempt` through the real gateway, `control` through the naive filter; both end at the lenient provider."""

    def attempt(scene: Scene) -> Outcome:
        with gateway(scene) as (provider, client, _):
            status = client.post(path, content=body, headers=dict(headers or {})).status_code
            got = [reads(request["body"]) for request in provider.requests]
        did = next(filter(None, got), "")
        return Outcome(bool(did), did or f"status {status}; {len(got)} request(s) reached the provider, to no effect")

    def control(scene: Scene) -> Outcome:
        passed = naive_filter(body, (headers or {}).get("content-encoding", ""))
        did = "" if passed is None else reads(passed)
        return Outcome(bool(did), did or "the naive filter held")

    return attempt, control


def naive_filter(body: bytes, encoding: str = "") -> bytes | None:
    """The agent's bytes, unpacked as the provider's end would, or None if something forbidden was seen."""
    unpacked = zlib.decompressobj(31).decompress(body) if encoding == "gzip" else body
    try:
        request = json.loads(unpacked)
    except ValueError:
        return None
    if any(request.get(name) for name in ("web_search_options", "previous_response_id", "background")):
        return None
    texts = [part for message in request.get("messages", []) for part in message.get("content", []) or []]
    for part in texts:
        url = part.get("image_url", {}) if isinstance(part, dict) else {}
        if isinstance(url, dict) and str(url.get("url", "")).lower().startswith(("http:", "https:")):
            return None
    return gzip.decompress(body) if encoding == "gzip" else body


def image(url: str, field: str = "image_url") -> bytes:
    """A chat request with one image; url: as it stands in the JSON text."""
    return b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","%s":{"url":"%s"}}]}]}' % (
        field.encode(),
        url.encode(),
    )


def fetches(body: bytes) -> str:
    """A provider that follows the web's rules for addresses: blanks and control characters are left out."""
    for part in _parts(json.loads(body)):
        for name, value in part.items():
            if name.casefold().replace("_", "") == "imageurl":
                url = value.get("url", "") if isinstance(value, dict) else str(value)
                url = "".join(character for character in url if character > " ").lower()
                if url.startswith(("http:", "https:", "//")):
                    return f"the provider fetches {url[:60]}"
    return ""


def keeps(*fields: str) -> Reads:
    """A provider that acts on any of these fields, wherever they are and whatever their value."""

    def reads(body: bytes) -> str:
        fields_found = [name for part in _parts(json.loads(body)) for name in part if name in fields]
        return f"the provider acts on {fields_found[0]!r}" if fields_found else ""

    return reads


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(inner)
