"""The published WebShop instructions in a text store of the official products."""
