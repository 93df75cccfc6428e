"""`python -m sandboxes.backends [auto|docker|bubblewrap]`: make the root file system now, so that no episode waits."""

import sys

from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable

if __name__ == "__main__":
    try:
        backend = prepare(sys.argv[1] if len(sys.argv) > 1 else "auto", progress=lambda text: print(text, flush=True))
    except (BackendUnavailable, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"boxes: {backend.name}")
