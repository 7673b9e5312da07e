"""The web app: what is in a folder of results as pages, live or as static files."""
