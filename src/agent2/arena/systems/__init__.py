"""Agent systems that strangers make: how each is installed and pinned, and how it is started in a sandbox."""
