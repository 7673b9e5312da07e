"""A world of documents: a model searches, opens pages, looks for words in them, and answers with citations.

`corpus` holds the documents and finds them by BM25, in memory or memory-mapped from disk; `world` is the environment.
"""
