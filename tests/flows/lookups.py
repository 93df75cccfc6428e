"""What tests of the stack look up, and wait for."""

import time

from lakehouse import connect
from tasks.registry.versions import CHAMPION


def promote_and_wait(registry, engine, name, version):
    """Move the alias by MLflow's own client; the seconds until the engine serves the version."""
    registry.client.set_registered_model_alias(name, CHAMPION, str(version))
    return wait_until_served(engine, name, version)


def wait_until_served(engine, name, version):
    """The seconds it took."""
    began = time.monotonic()
    while engine.served_version() != version:
        assert time.monotonic() < began + 150, f"{name} version {version} was not deployed"
        time.sleep(0.2)
    return time.monotonic() - began


def rows(sql):
    with connect() as connection:
        return connection.sql(f"{sql} order by all" if sql.startswith("from episodes") else sql).pl().to_dicts()
