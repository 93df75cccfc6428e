"""`python -m sandboxes.gateway.server.worker PLACE INDEX`: one of several workers, started by `workers.supervise`."""

import sys

from sandboxes.gateway.server.serve import Place, run_worker
from sandboxes.gateway.sessions.share import Share

if __name__ == "__main__":
    place = Place.model_validate_json(sys.argv[1])
    sys.exit(run_worker(place, Share(int(sys.argv[2]), place.workers)))
