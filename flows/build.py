"""Build: real packages become problems."""

from typing import Annotated, Literal

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from sandboxes.problems.swe.build import COMBINED, SINGLES, Order, Report
from tasks.build import builder, known, make_all, put
from tasks.showing import ashow


class Built(BaseModel):
    """What a build came to."""

    folder: str
    new: int  # problems or editions that the lake did not have
    report: Report


@flow(name="build", log_prints=True)
async def build(
    packages: list[str] | None = None,
    singles: Annotated[int, Field(ge=0)] = SINGLES,
    combined: Annotated[int, Field(ge=0)] = COMBINED,
    versions: bool = True,
    seed: int = 0,
    fresh: bool = False,
    folder: str | None = None,
    workers: Annotated[int, Field(ge=1)] | None = None,
    load: bool = True,
    backend: Literal["auto", "docker", "bubblewrap"] = "auto",
) -> Built:
    """Put bugs into real packages, keep those that hold up in boxes, tell them as problems. A stopped build goes on.

    Args:
        packages: Packages to make bugs in. Default: all that are known.
        singles: Problems with one bug that each package shall have; those that are there count.
        combined: Problems with two or three bugs that each package shall have.
        versions: Problems between two releases of a package as well.
        seed: Another seed draws other bugs.
        fresh: Begin with nothing, instead of adding to the shipped problems.
        folder: Where problems and journal are written. Default: problems/swe below the home folder.
        workers: Packages that are built at a time; the result is the same. Default: one for each core.
        load: Put what was built into the lake.
        backend: Where code runs. auto: Docker if an engine answers, else bubblewrap.
    """
    order = Order(singles=singles, combined=combined, versions=versions, seed=seed)
    wanted = known(packages)
    worker, out = builder(folder, backend, fresh=fresh)
    print(f"building into {out}: if this is interrupted, the same parameters continue it")
    await make_all(wanted, worker, order, out, workers)
    report = worker.report
    await ashow(
        acreate_table_artifact,
        key="candidates",
        table=[
            {"kind of bug": kind, "tried": rates.tried, "kept": rates.kept, "share": round(rates.share, 2)}
            for kind, rates in sorted(report.by_kind.items())
        ],
        description=f"{report.told} problems from {report.kept} of {report.tried} candidates; rejected: {report.rejected}",
    )
    new = put(worker.problems) if load else 0
    return Built(folder=str(out), new=new, report=report)
