"""What the lake says about the loop: reward by model version, the shape of episodes, and one episode token by token.

`lakeloop notebook` opens it, `marimo run` serves it as an app, and it runs as a script. It only reads.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Lakeloop trajectories")

with app.setup(hide_code=True):
    import marimo as mo
    import polars as pl
    from trajectories_charts import fate_chart, progress_chart, shape_chart
    from trajectories_page import entry, page, tokenizer_of

    import lakehouse
    from lakehouse.home import home


@app.cell(hide_code=True)
def _():
    again = mo.ui.button(label="Read the lake again", value=0, on_click=lambda times: times + 1)
    _title = mo.vstack(
        [
            mo.md("# Trajectories"),
            mo.md("What was rolled out, how it was judged, and what was learnt from it, to the token."),
        ]
    )
    mo.hstack([_title, again], align="center")
    return (again,)


@app.cell
def _(again):
    again.value  # a click connects again
    lake = lakehouse.connect()
    episodes = lake.sql("""
        with judgements as (
            select episode_id, rubric, outcome, reward
            from latest_rewards
            qualify row_number() over (partition by episode_id, rubric order by rubric_version desc) = 1
        ),

        learnt as (
            select episode_id, max_by(advantage, created_at) as advantage
            from training_rows
            inner join training_sets using (training_set_id)
            group by episode_id
        )

        select
            episode_id, group_id, sample_index, started_at, problem_id, problem_edition, problem_kind as kind, split,
            purpose, mode, model_name as model, model_version as version, status, error, n_calls as turns,
            n_completion_tokens as tokens, outcome, reward, advantage
        from episodes
        left join learnt using (episode_id)
        left join judgements on judgements.episode_id = episodes.episode_id and judgements.rubric = episodes.problem_kind
        order by started_at desc, episode_id
    """).pl()
    _none = f"No episodes yet in `{home().lake}`: run `lakeloop quickstart`."
    if episodes.is_empty() and mo.app_meta().mode == "script":
        print(_none)
    mo.stop(episodes.is_empty(), mo.callout(mo.md(_none), kind="info"))
    return episodes, lake


@app.cell(hide_code=True)
def _(episodes, lake):
    _policy = episodes.filter(mode="policy")
    _sets, _trained = lake.sql("select count(*), coalesce(sum(n_trained_tokens), 0) from training_sets").fetchone()
    mo.hstack(
        [
            mo.stat(f"{len(episodes):,}", label="episodes", bordered=True),
            mo.stat(f"{episodes['turns'].sum():,}", label="model calls", bordered=True),
            mo.stat(f"{episodes['tokens'].sum():,}", label="sampled tokens", bordered=True),
            mo.stat(f"{_policy['version'].n_unique()}", label="versions that acted", bordered=True),
            mo.stat(f"{_trained:,}", label=f"trained tokens, {_sets} set{'s' * (_sets != 1)}", bordered=True),
        ],
        widths="equal",
    )
    return


@app.cell
def _(episodes):
    _models = episodes["model"].unique(maintain_order=True).to_list()
    model = mo.ui.dropdown(_models, value=_models[0], label="model")
    _about = mo.md("""
    ## Does it learn?

    Success is the share of episodes that solved their problem; the reward is what training saw. Bars are 95 % intervals.
    """)
    mo.vstack([_about, *([model] if len(_models) > 1 else [])], gap=0)
    return (model,)


@app.cell
def _(episodes, model):
    acted = episodes.filter(pl.col("version").is_not_null(), mode="policy", model=model.value)
    by_version = (
        acted.filter(pl.col("outcome").is_not_null())
        .group_by("kind", "split", "version")
        .agg(
            episodes=pl.len(),
            success=pl.col("outcome").mean(),
            reward=pl.col("reward").mean(),
            reward_error=1.96 * pl.col("reward").std() / pl.len().sqrt(),
        )
        .sort("kind", "split", "version")
    )
    return acted, by_version


@app.cell
def _(by_version, lake, model):
    _none = mo.callout(mo.md("**Nothing judged yet:** `lakeloop label` gives episodes their rewards."), kind="info")
    mo.stop(by_version.is_empty(), _none)
    stages = dict(lake.execute("select version, stage from model_versions where name = $1", [model.value]).fetchall())
    progress = progress_chart(by_version, stages)
    progress
    return (progress,)


@app.cell
def _(acted, lake):
    staleness = lake.sql("""
        select staleness, sum(tokens)::bigint as tokens
        from staleness
        group by staleness
        order by staleness
    """).pl()
    shape = shape_chart(acted, staleness)
    _about = mo.md("""
    ## How long, and how fresh?

    Lengths are of the policy's own episodes. Staleness is how many versions old a trained token was when it was trained on.
    """)
    mo.vstack([_about, shape], gap=0)
    return shape, staleness


@app.cell
def _(lake, model):
    fates = lake.sql("""
        select left(training_set_id, 11) as training_set, concat_ws(': ', fate, reason) as fate, tokens
        from queries.where_tokens_went
        order by created_at, training_set_id, where_tokens_went.fate <> 'trained', tokens desc
    """).pl()
    hacks = lake.execute(
        """
        select
            problem_kind as kind, model_version as version, sum(episodes)::bigint as episodes,
            sum(severe) / sum(episodes) as rate
        from radar_by_version
        where model_name = $1 and model_version is not null
        group by all
        order by all
        """,
        [model.value],
    ).pl()
    seen = lake.sql("""
        select detector, count(*) as episodes, max(weight) as weight, any_value(detail) as for_example
        from radar
        group by detector
        order by weight desc, episodes desc
    """).pl()
    fate = fate_chart(fates, hacks)
    _about = mo.md("""
    ## Where did tokens go, and does it cheat?

    Every sampled token was trained, masked or dropped, with a reason. The radar counts episodes that show what no honest work does.
    """)
    mo.vstack([_about, fate, *([mo.ui.table(seen, selection=None)] if len(seen) else [])], gap=0)
    return fate, fates, hacks, seen


@app.cell
def _(episodes):
    _purposes = episodes["purpose"].unique(maintain_order=True).to_list()
    purpose = mo.ui.dropdown(["all", *_purposes], value="train" if "train" in _purposes else "all", label="purpose")
    kind = mo.ui.dropdown(["all", *episodes["kind"].unique().sort()], value="all", label="kind")
    outcome = mo.ui.dropdown(["all", "solved", "not solved", "no reward"], value="all", label="outcome")
    trained_on = mo.ui.checkbox(label="trained on")
    _filters = mo.hstack([purpose, kind, outcome, trained_on], justify="start", align="center", gap=1.5)
    mo.vstack([mo.md("## One episode"), _filters], gap=1)
    return kind, outcome, purpose, trained_on


@app.cell
def _(episodes, kind, outcome, purpose, trained_on):
    _having = {
        "all": pl.lit(True),
        "solved": pl.col("outcome") == 1,
        "not solved": pl.col("outcome") < 1,
        "no reward": pl.col("outcome").is_null(),
    }
    matching = episodes.filter(
        _having[outcome.value],
        pl.lit(purpose.value == "all") | (pl.col("purpose") == purpose.value),
        pl.lit(kind.value == "all") | (pl.col("kind") == kind.value),
        pl.lit(not trained_on.value) | pl.col("advantage").is_not_null(),
    ).head(300)
    mo.stop(matching.is_empty(), mo.callout(mo.md("**No such episode.** Choose other filters."), kind="info"))
    _labels = {entry(row): row["episode_id"] for row in matching.to_dicts()}
    _learnt_from = [entry(row) for row in matching.to_dicts() if row["advantage"] is not None]
    chosen = mo.ui.dropdown(
        _labels,
        value=next(iter(_learnt_from or _labels)),  # the newest that was trained on: there is most to see
        label="episode, newest first",
        searchable=True,
        full_width=True,
    )
    chosen
    return chosen, matching


@app.cell
def _(chosen, episodes, lake):
    _id = [chosen.value]
    episode = episodes.row(by_predicate=pl.col("episode_id") == chosen.value, named=True)
    siblings = episodes.filter(group_id=episode["group_id"]).sort("sample_index")
    calls = lake.execute("from calls where episode_id = $1 order by call_index", _id).pl().to_dicts()
    actions = lake.execute("from actions where episode_id = $1 order by action_index", _id).pl().to_dicts()
    facts = dict(lake.execute("select name, value from evidence where episode_id = $1 order by name", _id).fetchall())
    return actions, calls, episode, facts, siblings


@app.cell
def _(chosen, lake):
    trained = lake.execute(
        """
        select training_set_id, objective, policy_version, input_ids, loss_mask, advantage
        from training_rows
        inner join training_sets using (training_set_id)
        where episode_id = $1
        order by created_at desc, row_index
        """,
        [chosen.value],
    ).pl()
    _sets = trained["training_set_id"].unique(maintain_order=True).to_list()
    training_set = mo.ui.dropdown(_sets, value=_sets[0] if _sets else None, label="advantage in training set")
    training_set if len(_sets) > 1 else None
    return trained, training_set


@app.cell
def _(actions, calls, episode, facts, lake, siblings, trained, training_set):
    rows = trained.filter(pl.col("training_set_id").eq_missing(training_set.value)).to_dicts()
    _asked = lake.execute(
        "select prompt from problem_editions where problem_id = $1 and edition is not distinct from $2",
        [episode["problem_id"], episode["problem_edition"]],
    ).fetchone()
    _tokenizer = tokenizer_of(lake, episode["model"])
    shown = page(episode, _asked[0] if _asked else "", facts, siblings, calls, actions, rows, _tokenizer)
    mo.Html(shown)
    return rows, shown


@app.cell(hide_code=True)
def _(by_version, calls, episode):
    if mo.app_meta().mode == "script":  # `python notebooks/trajectories.py`
        print(by_version)
        print(f"shown: {entry(episode)}, {len(calls)} turns")
    return


if __name__ == "__main__":
    app.run()
