"""The real service with the toys, as a process: python -m tests.service.server PORT '{"limit": value}' [DEVICE]"""

import json
import sys

from compute.service.jobs import Limits
from compute.service.serve import serve
from tests.service import toys

if __name__ == "__main__":
    toys.offer()
    port, limits, *device = sys.argv[1:]
    sys.exit(serve("127.0.0.1", int(port), *device, limits=Limits(**json.loads(limits)), preload=False))
