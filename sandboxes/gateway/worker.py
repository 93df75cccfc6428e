"""`python -m sandboxes.gateway.worker PLACE INDEX`: one of several workers. Started by `workers.supervise`, not by people."""

import sys

from sandboxes.gateway.serve import Place, run_worker
from sandboxes.gateway.share import Share

if __name__ == "__main__":
    place = Place.model_validate_json(sys.argv[1])
    sys.exit(run_worker(place, Share(int(sys.argv[2]), place.workers)))
