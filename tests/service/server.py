"""The real service with the toys, as a process: python -m tests.service.server PORT '{"limit": value}'"""

import json
import sys

from compute.service.jobs import Limits
from compute.service.serve import serve
from tests.service import toys

if __name__ == "__main__":
    toys.offer()
    sys.exit(serve(port=int(sys.argv[1]), limits=Limits(**json.loads(sys.argv[2])), preload=False))
