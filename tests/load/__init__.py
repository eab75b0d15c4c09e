"""A class of learners on loopback, by Streamlit's own protocol and without a browser: `python -m tests.load`. What it found: docs/load.md."""
