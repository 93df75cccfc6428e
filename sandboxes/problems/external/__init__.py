"""Problems whose episodes an application outside plays, through the gateway, and judges itself."""

from sandboxes.problems.external import rows
from sandboxes.problems.external.kind import KIND

__all__ = ["KIND", "rows"]
