"""Maintenance and erasure while others land: nothing is lost, nothing comes twice, nothing comes back."""

import threading
from contextlib import suppress

from lakehouse import connect
from lakehouse.governance import checks, erase, plan
from lakehouse.governance.retain import retain
from lakehouse.governance.vacuum import vacuum
from lakehouse.store import Overtaken
from lakehouse.write import Writer

ROUNDS = 6


def test_landing_goes_on_while_the_lake_is_compacted_vacuumed_expired_and_erased_from(home_folder, lake, make):
    hers = [make.batch("shop", number, subject="ada-lovelace") for number in range(ROUNDS)]
    theirs = [[make.batch(f"p{who}", number) for number in range(ROUNDS)] for who in range(2)]
    hers[0].land(lake)
    errors: list[Exception] = []
    done = threading.Event()

    def guarded(work):
        def run():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - told by the test
                errors.append(error)

        return threading.Thread(target=run)

    def landing(batches, again):
        for batch in batches:
            batch.land(lake)
            again.land(lake)  # hers, once more and once more

    def maintaining():
        while not done.is_set():
            with suppress(Overtaken):  # erasure goes first; the flow's task tries again
                Writer(lake).compact()
            retain(lake)
            vacuum(lake, kept_days=1)

    landers = [guarded(lambda batches=batches: landing(batches, hers[0])) for batches in theirs]
    keeper = guarded(maintaining)
    for thread in [*landers, keeper]:
        thread.start()
    wanted = plan.plan(lake, episode_ids=[hers[0].episodes[0].episode_id], reason="ticket", requested_by="bob")
    erase.begin(wanted)
    erase.remove(wanted)
    for thread in landers:
        thread.join()
    done.set()
    keeper.join()
    assert errors == []
    row = erase.finish(wanted, erase.look(wanted))
    assert row.scanned is not None
    with connect(lake) as connection:
        landed = sorted(name for (name,) in connection.execute("select episode_id from episodes").fetchall())
        n_calls = connection.execute("select count(*) from bronze.calls").fetchone()[0]
    assert landed == sorted(batch.episodes[0].episode_id for batches in theirs for batch in batches)
    assert n_calls == len(landed)
    assert [result.name for result in checks.run(lake) if result.failed] == []
