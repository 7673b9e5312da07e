"""Third-party agent systems: how each is installed, pinned and started in a sandbox."""
