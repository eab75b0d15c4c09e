"""The pages: the server, the shell around every page, and lessons as Markdown."""
