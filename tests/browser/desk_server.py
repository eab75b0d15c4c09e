"""The web server with another store of numbers: `python -m tests.browser.desk_server STORE PORT`. For tests that spoil a copy."""

import sys
from pathlib import Path

import uvicorn

from compute import precompute

if __name__ == "__main__":
    precompute.STORE = Path(sys.argv[1])
    uvicorn.run("app.asgi:app", host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
