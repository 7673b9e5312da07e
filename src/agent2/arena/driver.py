"""The driver of a trial: checked before anything starts, reached through a gateway while the agent works.

The gateway is a process of its own that holds the key and listens on a unix socket alone in its folder; inside the
sandbox it is a loopback port beside that of the grading API. The agent has a dummy key.

Does NOT check that the provider knows the model: its first answer shows it.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent2.arena.agents import Agent
from agent2.arena.assignment import InsidePaths
from agent2.arena.host_folders import HostFolders
from agent2.arena.spec import TrialConfig
from agent2.arena.systems import LlmInside
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.errors import ConfigError
from agent2.llm.gateway.settings import GatewaySettings, ReplaySettings, load_prices
from agent2.llm.gateway.supervisor import Gateway
from agent2.llm.records import Driver, TokenCounts

LLM_PORT = 8001
"""Loopback port of the gateway inside a sandbox."""
LATE_S = 120.0
"""The gateway begins no call this long after the agent's time must be over; the agent is stopped before."""
MIN_KEY_CHARS = 8
"""A shorter key would be found by chance in other variables."""
ARENA_VOLATILE = (
    r'(?<!\\)\\*"(timestamp|elapsed_seconds|start_time|end_time|last_submit_time|now|remaining)\\*"\s*:\s*\\*"?[^,}\s"\\]+',
    r"\b19[0-9]{8}\b",
)
"""What differs from run to run: times in the grading API's answers, and the sandbox's user id."""


def require_driver(agent: Agent, config: TrialConfig) -> None:
    """Require that the driver fits the agent, that its key is set, and that the budget can be enforced.

    Raises ConfigError.
    """
    protocol, driver = agent.spec.llm, config.driver_record
    if protocol is None:
        if driver is not None:
            raise ConfigError(
                f"agent {agent.spec.name} is driven by no LLM (its agent.yaml has no key llm); remove --driver"
            )
        return
    if driver is None:
        raise ConfigError(f"agent {agent.spec.name} is driven by an LLM; pass one, as in --driver openai/gpt-5.2")
    leak = _leak_of(driver, agent)
    if leak is not None:
        raise ConfigError(
            f"agent {agent.spec.name}: pass_environment lets the key in {leak} into the sandbox; take it "
            "out of its agent.yaml: the agent has {{llm_url}} and {{llm_key}} in its place"
        )
    if config.replay is not None:
        return
    driver.require(protocol)
    driver.resolved()
    dollars = config.budget.llm_dollars
    if dollars is not None and load_prices(_prices(config)).cost(driver.model, TokenCounts(1, 1)) is None:
        raise ConfigError(
            f"budget.llm_dollars={dollars:g} cannot be held: the price of {driver.model!r} is not known; pass a price "
            "file with --set prices=FILE, or set budget.llm_tokens instead"
        )


def _leak_of(driver: Driver, agent: Agent) -> str | None:
    """A variable that the agent would get and that holds the driver's key, under whatever name."""
    key = os.environ.get(driver.api_key_env, "") if driver.api_key_env else ""
    for name in agent.spec.pass_environment:
        if name == driver.api_key_env or (len(key) >= MIN_KEY_CHARS and key in os.environ.get(name, "")):
            return name
    return None


def _prices(config: TrialConfig) -> Path | None:
    return Path(config.prices) if config.prices is not None else None


@contextmanager
def open_gateway(agent: Agent, config: TrialConfig, paths: TrialPaths, inside: InsidePaths) -> Iterator[Gateway | None]:
    """A gateway for the agent's phase; None for an agent without a driver.

    Raises ConfigError as `require_driver`, and if it does not start.
    """
    require_driver(agent, config)
    if agent.spec.llm is None or config.driver_record is None:
        yield None
        return
    paths.llm_socket.parent.mkdir(parents=True, exist_ok=True)
    gateway = Gateway.start(gateway_settings(agent, config, config.driver_record, paths, inside))
    try:
        yield gateway
    finally:
        gateway.stop()


def llm_inside(agent: Agent, config: TrialConfig, inside: InsidePaths) -> LlmInside | None:
    """The driver as the agent sees it; None for an agent without one."""
    if agent.spec.llm is None or config.driver_record is None:
        return None
    return LlmInside(url=inside.llm_url, key=config.llm_key, model=config.driver_record.model)


def gateway_settings(
    agent: Agent, config: TrialConfig, driver: Driver, paths: TrialPaths, inside: InsidePaths
) -> GatewaySettings:
    """What the gateway of a trial is configured with."""
    replay = None
    if config.replay is not None:
        source = TrialPaths(Path(config.replay.trial))
        volatile = (*agent.spec.volatile, *ARENA_VOLATILE, *_host_patterns(source, inside), *HostFolders().volatile())
        replay = ReplaySettings(source=source.llm, strict=config.replay.strict, volatile=volatile)
    budget = config.budget
    return GatewaySettings(
        socket=paths.llm_socket,
        record=paths.llm,
        endpoints=driver.resolved() if replay is None else (),
        model=driver.model,
        dummy_key=config.llm_key,
        prices=_prices(config),
        max_tokens=budget.llm_tokens,
        max_dollars=budget.llm_dollars,
        deadline=time.time() + budget.wall_clock_s + LATE_S,
        replay=replay,
    )


def _host_patterns(source: TrialPaths, inside: InsidePaths) -> tuple[str, ...]:
    """Patterns for the workspaces and ports of both trials, which differ where there is no sandbox; else none."""
    recorded = read_events(source.trial_log).last("agent_started") or {}
    workspaces = {inside.workspace, str(recorded.get("workspace", inside.workspace))}
    if len(workspaces) == 1:  # both are /workspace, so the ports are the fixed ones, too
        return ()
    ports = {inside.grading_port, inside.llm_port}
    ports |= {recorded[key] for key in ("grading_port", "llm_port") if isinstance(recorded.get(key), int)}
    # longest first: one workspace may be a prefix of the other
    folders = (re.escape(workspace) for workspace in sorted(workspaces, key=len, reverse=True))
    return (*folders, *(rf"127\.0\.0\.1:{port}\b" for port in sorted(ports)))
