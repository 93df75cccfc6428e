"""Reconcile: what is served becomes what is promoted."""

from prefect import flow

from tasks.reconcile import VERDICTS, Due, end_split, forgive, look, refuse
from tasks.release import NotDeployed, deploying, serve
from tasks.serving.engine import Swap


@flow(name="reconcile", log_prints=True)
def reconcile(swap: Swap = "keep") -> int | None:
    """Deploy the version that the alias `champion` points at, if an engine serves another one. The version served now.

    While a loop is at work its newest version, the `challenger`, is what should be served. A version that may not be served
    (its files are gone, its tokenizer is another, it is tainted, it is not proven) is refused: what was served goes on, and
    MLflow and Prefect say why.

    Args:
        swap: What becomes of calls in flight: keep (they go on with the new weights), wait (they end first), abort.
    """
    with deploying():
        due = look()
        if due.version is not None and due.engines:
            print(
                f"version {due.version} is promoted and {due.served} is served: deploying on {', '.join(due.engines)}"
            )
            _deploy(due, due.version, swap)
        if due.split:
            end_split()
        return due.version if due.engines else due.served


def _deploy(due: Due, version: int, swap: Swap) -> None:
    try:
        serve(version, swap=swap, engines=due.engines)
    except (*VERDICTS, NotDeployed) as error:
        instead = refuse(version, due.alias, str(error)) if due.own else None
        if instead is not None:
            print(f"version {instead}, which was proven last, is served in its place")
            serve(instead, swap=swap, engines=due.engines)
        raise
    forgive(version)
