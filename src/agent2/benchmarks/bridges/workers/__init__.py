"""Programs that the Python of a bridge's environment runs; nothing else here imports them."""
