"""A service desk: a customer who wants something, a database, a policy, and tools that write."""
