"""Run an untrusted program: bubblewrap by default, each limit reported with its strength."""
