"""Why an endpoint gave no answer: a refusal, or what was wrong with the connection."""

from dataclasses import dataclass, replace
from enum import StrEnum

from agent2.errors import Fault
from agent2.records import Completion, StopReason


class ConnectionFailure(StrEnum):
    """Why there was no HTTP answer at all."""

    UNREACHABLE = "unreachable"
    """The connection was not accepted."""
    TIMEOUT = "timeout"
    """The connection was accepted, and no complete answer came in time."""


@dataclass(frozen=True, slots=True)
class WireProblem:
    """Why there is no completion."""

    reason: str
    fault: Fault
    may_pass: bool
    """Another try can help."""
    wait_s: float | None = None
    """How long the server asks to wait before it."""
    connection_failure: ConnectionFailure | None = None
    """Set exactly when the server sent no HTTP answer."""
    refused: tuple[str, ...] = ()
    """Fields of the request that the server does not take, or not with these values."""
    room: int | None = None
    """How many new tokens would fit the context, where prompt and answer together do not and the server says so."""
    n_dropped: int = 0
    """Tokens that the model wrote and the server did not send."""
    is_final: bool = False
    """The model's own output provoked it."""


def malformed(problem: str, expected: str = "chat completion") -> WireProblem:
    """An answer that cannot be read; another try may bring one that can."""
    return WireProblem(f"the endpoint's answer is not a {expected}: {problem}", Fault.INFRASTRUCTURE, may_pass=True)


def with_tries(problem: WireProblem, n_tries: int, asked_s: float | None) -> WireProblem:
    """The problem, its reason extended by the number of tries and a wait that was too long."""
    wait = f"; the server asks to wait {asked_s:g} s, too long" if asked_s is not None else ""
    tries = f" (after {n_tries} tries)" if n_tries > 1 else ""
    return replace(problem, reason=f"{problem.reason}{tries}{wait}")


def fault_completion(problem: WireProblem) -> Completion:
    """The completion of a request without an answer."""
    return Completion(
        "", stop_reason=StopReason.FAULT, fault=problem.fault, reason=problem.reason, is_final=problem.is_final
    )
