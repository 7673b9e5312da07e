"""Calls a provider: with its key, without redirects, and again where the provider lets it.

A call is made again after 429, 5xx or a connection that broke before the first byte of the answer, at most
`max_retries` times, after the time that the provider asks for. Once the status of an answer that will be
passed on is known, nothing is made again: what comes later is the agent's to see.
"""

import asyncio
import email.utils
import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from agent2.arena.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)

CONNECT_S = 30.0
FIRST_WAIT_S = 0.5
"""Before the first retry, where the provider names no time; doubled each time."""
MAX_ERROR_BODY = 1024 * 1024
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_HOPELESS = (b"insufficient_quota", b"billing_hard_limit_reached", b"credit balance is too low")
"""A 429 that says one of these will say it again."""
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')


class NoAnswer(Exception):
    """No answer could be had; the sentence is for the agent, and names no host."""

    def __init__(self, sentence: str, *, retries: int, is_timeout: bool):
        super().__init__(sentence)
        self.retries = retries
        self.is_timeout = is_timeout


@dataclass(slots=True)
class Answer:
    """The beginning of a provider's answer."""

    response: aiohttp.ClientResponse
    """Open; whoever gets it releases it."""
    error_body: bytes | None
    """Of an answer with an error status; that of others is still to be read."""
    retries: int


class Upstream:
    """The way to the provider."""

    def __init__(self, settings: GatewaySettings, session: aiohttp.ClientSession, rng: random.Random):
        self._settings = settings
        self._session = session
        self._rng = rng
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=CONNECT_S, sock_read=settings.idle_timeout_s
        )

    async def call(
        self, url: str, headers: Mapping[str, str], body: bytes, proxy: str | None, has_left: Callable[[], bool]
    ) -> Answer:
        """POST, again where that is allowed and somebody still waits. Raises NoAnswer when there is none to be had."""
        retries = 0
        while True:
            wait: float | None
            try:
                response = await self._session.post(
                    url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False, proxy=proxy
                )
            except aiohttp.SocketTimeoutError as error:
                raise NoAnswer(
                    f"the provider did not answer within {self._settings.idle_timeout_s:g} seconds",
                    retries=retries,
                    is_timeout=True,
                ) from error
            except (aiohttp.ClientError, OSError) as error:
                wait = self._allowed(self._backoff(retries), retries)
                logger.warning("no connection to the provider (%s), try %d", type(error).__name__, retries + 1)
                if wait is None:
                    raise NoAnswer(
                        f"the provider cannot be reached ({type(error).__name__}, {retries + 1} tries)",
                        retries=retries,
                        is_timeout=False,
                    ) from error
            else:
                if response.status < 300:
                    return Answer(response, None, retries)
                error_body = await _read_error(response)
                wait = self._wait_after(response, error_body, retries)
                if wait is None:
                    return Answer(response, error_body, retries)
                logger.warning("the provider said %d, try %d", response.status, retries + 1)
                response.release()
            await asyncio.sleep(wait)
            if has_left():
                raise NoAnswer("the agent gave up before an answer came", retries=retries, is_timeout=False)
            retries += 1

    def _wait_after(self, response: aiohttp.ClientResponse, body: bytes, retries: int) -> float | None:
        """Seconds until the next try, or None if there is none."""
        wish = response.headers.get("x-should-retry", "")
        if wish == "false" or (wish != "true" and response.status not in _AGAIN):
            return None
        if response.status == 429 and any(words in body for words in _HOPELESS):
            return None
        asked = retry_after(response.headers, body, time.time())
        return self._allowed(self._backoff(retries) if asked is None else asked, retries)

    def _backoff(self, retries: int) -> float:
        return FIRST_WAIT_S * 2.0**retries * (0.75 + 0.5 * self._rng.random())

    def _allowed(self, wait: float, retries: int) -> float | None:
        settings = self._settings
        if retries >= settings.max_retries or wait > settings.max_retry_wait_s:
            return None
        if settings.deadline is not None and time.time() + wait >= settings.deadline:
            return None
        return wait


def retry_after(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Seconds that a provider asks to wait, from its headers or (Gemini) its error; None if it names none."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        if "retry-after" in headers:
            return max(0.0, float(headers["retry-after"]))
    except ValueError:
        when = email.utils.parsedate_tz(headers.get("retry-after", ""))
        if when is not None:
            return max(0.0, email.utils.mktime_tz(when) - now)
    match = _RETRY_DELAY.search(body)
    return float(match.group(1)) if match else None


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """The body of an error, cut at a mebibyte; one of our own if it breaks off."""
    body = b""
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_ERROR_BODY:
                break
        return body[:MAX_ERROR_BODY]
    except (aiohttp.ClientError, OSError):
        return msgspec.json.encode({"error": {"message": "the provider's error broke off", "code": response.status}})
