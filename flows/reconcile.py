"""Reconcile: what is served becomes what is promoted."""

from prefect import flow

from tasks.release import compare_promoted, deploying, serve


@flow(name="reconcile", log_prints=True)
def reconcile() -> int | None:
    """Deploy the version that the alias `champion` points at, if the engine serves another one. The version served now."""
    with deploying():
        promoted, served = compare_promoted()
        if promoted is None or promoted == served:
            return served
        print(f"version {promoted} is promoted and {served} is served: deploying")
        serve(promoted)
        return promoted
