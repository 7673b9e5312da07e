"""Installing a bridge: its environment, and what its package says of itself."""

from collections.abc import Callable

from agent2.benchmarks.bridges import Bridge
from agent2.benchmarks.bridges.channel import BridgeChannel
from agent2.engines.environments import InstalledEnvironment, install_environment
from agent2.errors import MachineError, quoted
from agent2.records import JsonValue


def install_bridge(bridge: Bridge, on_progress: Callable[[str], None] | None = None) -> InstalledEnvironment:
    """Make the environment of a bridge and start its package once, or find it.

    Raises MachineError with pip's or the package's last line if that fails; nothing is left behind then.
    """

    def learn(ready: InstalledEnvironment) -> dict[str, JsonValue]:
        if on_progress is not None:
            on_progress("starting the package once")
        channel = BridgeChannel(bridge.name, ready.folder, bridge.worker)
        try:
            facts = channel.ask("describe")
        finally:
            channel.close()
        names = facts.get("names") if isinstance(facts, dict) else None
        has_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not has_names or (not names and not bridge.suffixes):
            raise MachineError(f"bridge {bridge.name}: its package lists no names ({quoted(facts)})")
        return dict(facts)

    return install_environment(bridge.pinned, on_progress, learn)
