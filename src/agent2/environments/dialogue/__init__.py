"""A dialogue: a user who wants something, a database, a policy, and tools that write."""
