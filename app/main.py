"""The script that Streamlit runs for every page and every interaction; see app/shell.py."""

from app import shell

shell.run()
