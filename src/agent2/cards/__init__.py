"""Rollout cards: what one evaluation leaves behind, written durably, read in pages, checked and aggregated."""
