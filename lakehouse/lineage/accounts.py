"""The token ledgers as accounts: per training set, and on request of one run or of what made one model version."""

from pydantic import BaseModel

from lakehouse.lineage.versions import Row, records, version
from lakehouse.query import connect


class Cost(BaseModel):
    """What the tokens of a training set took, all that was sampled for it included; see the view `training_costs`."""

    wall_seconds: float | None  # of its runs, one after another
    episode_seconds: float
    prompt_tokens: int
    seconds_per_trained_token: float | None  # of episodes
    prompt_per_trained_token: float | None
    sampled_per_trained_token: float | None
    cost: float | None = None  # at the price that was asked for
    cost_per_million_trained_tokens: float | None = None


class Account(BaseModel):
    """sampled = trained + masked(reason) + dropped(reason). `gap` is what is missing from that."""

    training_set_id: str
    versions: list[str]  # that were trained on the set
    sampled: int
    trained: int
    masked: dict[str, int]
    dropped: dict[str, int]
    gap: int
    rows_differ: bool  # the rows hold another number of trained tokens than the set says
    cost: Cost | None  # of the whole set


def accounts(
    lake: str | None,
    *,
    training_set_id: str | None = None,
    run_id: str | None = None,
    model: str | None = None,
    price_per_hour: float | None = None,
) -> list[Account]:
    """Ledgers, the newest set first. `run_id` counts only what that run sampled; `model` is `name@number`.

    UnknownVersion where there is no such version. Empty where no set fits.
    """
    with connect(lake) as connection:
        if model is not None:
            training_set_id = version(connection, model).training_set_id or "none"
        price = "null" if price_per_hour is None else repr(float(price_per_hour))
        connection.execute(f"set variable price_per_hour = {price}")
        rows = records(
            connection,
            """
            select training_set_id, fate, reason, sum(tokens)::bigint as tokens, max(created_at) as created_at
            from token_ledger
            where ($1 is null or training_set_id = $1) and ($2 is null or run_id = $2)
            group by training_set_id, fate, reason
            order by created_at desc, training_set_id, fate, tokens desc
            """,
            [training_set_id, run_id],
        )
        costs = {row.pop("training_set_id"): row for row in records(connection, "from training_costs")}
        wrong = {row["training_set_id"] for row in records(connection, "from checks.token_ledger")}
        made: dict[str, list[str]] = {}
        for row in records(connection, "from model_versions where training_set_id is not null order by version"):
            made.setdefault(row["training_set_id"], []).append(f"{row['name']}@{row['version']}")
    names = list(dict.fromkeys(row["training_set_id"] for row in rows))
    return [
        _account(
            name,
            [row for row in rows if row["training_set_id"] == name],
            made.get(name, []),
            costs.get(name),
            differs=name in wrong,
        )
        for name in names
    ]


def _account(name: str, rows: list[Row], versions: list[str], cost: Row | None, *, differs: bool) -> Account:
    def of(fate: str) -> dict[str, int]:
        return {row["reason"]: row["tokens"] for row in rows if row["fate"] == fate}

    sampled, trained = (sum(of(fate).values()) for fate in ("sampled", "trained"))
    masked, dropped = of("masked"), of("dropped")
    gap = sampled - trained - sum(masked.values()) - sum(dropped.values())
    told = None if cost is None else Cost(**{key: value for key, value in cost.items() if key in Cost.model_fields})
    return Account(
        training_set_id=name,
        versions=versions,
        sampled=sampled,
        trained=trained,
        masked=masked,
        dropped=dropped,
        gap=gap,
        rows_differ=differs,
        cost=told,
    )
