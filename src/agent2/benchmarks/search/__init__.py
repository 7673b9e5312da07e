"""Questions over worlds of linked pages: search, open, and answer with citations."""
