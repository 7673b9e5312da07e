"""Searching for an API, calling it and answering, the embedded counterpart of API-Bank."""
