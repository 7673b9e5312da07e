"""Starts, watches and ends the gateway's process."""

from agent2.arena.gateway.settings import GatewaySettings


class Gateway:
    """A running gateway. Use as a context manager or call `stop`."""

    @classmethod
    def start(cls, settings: GatewaySettings) -> "Gateway":
        """Start the process and wait until it answers; a process that dies is started again until `stop`."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the process: open calls get a few seconds. May be called twice."""
        raise NotImplementedError

    @property
    def is_alive(self) -> bool:
        """The process runs (false for a moment while it is being restarted)."""
        raise NotImplementedError
