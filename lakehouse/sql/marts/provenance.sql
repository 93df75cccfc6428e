-- grain: one row per model version, aspect and item: what made the version, each with what is known of it
-- aspects: version, selection, setting, filter, rubric, data, run, engine, sampling, weights, table. `amount` counts episodes (of data,
-- run and rubric), calls (of engine and sampling) or tokens (of weights).
with made as (
    select
        model_versions.name,
        model_versions.version,
        model_versions.training_set_id,
        training_sets.* exclude (training_set_id, created_at, licences, allowed_uses)
    from model_versions
    inner join training_sets using (training_set_id)
),

used as (
    select
        made.name,
        made.version,
        trained_on.episode_id,
        trained_on.trained_tokens,
        episodes.run_id,
        episodes.problem_kind,
        permissions.source
    from made
    inner join trained_on using (training_set_id)
    inner join episodes using (episode_id)
    left join permissions
        on
            episodes.problem_id = permissions.problem_id
            and episodes.problem_edition is not distinct from permissions.edition
),

judged as (
    select made.name, made.version, rubric, rubric_digest, parameters, count(*) as episodes
    from made
    inner join trained_on using (training_set_id)
    inner join judgements using (episode_id)
    where list_contains(made.rubrics, judgements.rubric || '@' || judgements.rubric_version)
    group by made.name, made.version, rubric, rubric_version, rubric_digest, parameters
),

rubrics as (
    select name, version, unnest(rubrics) as rubric
    from made
),

called as (
    select
        used.name,
        used.version,
        calls.engine_version,
        calls.template_digest,
        coalesce(calls.sampling ->> '$.temperature', '1') as temperature,
        coalesce(calls.sampling ->> '$.top_p', '1') as top_p
    from used
    inner join calls using (episode_id)
),

facts as (
    select name, version, 'version' as aspect, unnest(['stage', 'parent', 'learnt_from', 'training_set', 'commit', 'mlflow_run', 'weights']) as item,
        unnest([stage, parent_version::varchar, array_to_string(learnt_from, ', '), training_set_id, commit, mlflow_run_id, weights_digest]) as value,
        null::bigint as amount
    from model_versions

    union all

    -- sets of an earlier release do not say how advantages were made: there were two ways
    select name, version, 'selection', item,
        coalesce(
            made.selection -> '$.asked' ->> item,
            if(item = 'advantage', if((made.selection ->> '$.asked.objective') = 'sft', 'none', 'grpo'), null)
        ),
        null
    from made
    cross join (
        select unnest(
            [
                'objective',
                'advantage',
                'overlong',
                'max_staleness',
                'max_tokens_per_row',
                'credit',
                'discount',
                'policy_version',
                'model_name'
            ]
        ) as item
    )

    union all

    select name, version, 'setting', key, (made.selection -> '$.settings') ->> key, null
    from (select *, unnest(json_keys(made.selection -> '$.settings')) as key from made) as made

    union all

    select name, version, 'filter', step ->> '$.name', step ->> '$.digest', null
    from (select *, unnest((made.selection -> '$.filters')::json[]) as step from made) as made

    union all

    select name, version, 'filter', made.filter, null, null
    from made
    where made.selection is null

    union all

    select
        rubrics.name,
        rubrics.version,
        'rubric',
        split_part(rubrics.rubric, '@', 1),
        concat_ws(' ', split_part(rubrics.rubric, '@', 2), judged.rubric_digest, judged.parameters),
        judged.episodes
    from rubrics
    left join judged
        on
            rubrics.name = judged.name
            and rubrics.version = judged.version
            and split_part(rubrics.rubric, '@', 1) = judged.rubric

    union all

    select name, version, 'data', coalesce(source, problem_kind), null, count(*)
    from used
    group by name, version, coalesce(source, problem_kind)

    union all

    select name, version, 'run', run_id, null, count(*)
    from used
    group by name, version, run_id

    union all

    select name, version, 'engine', engine_version, template_digest, count(*)
    from called
    group by name, version, engine_version, template_digest

    union all

    select name, version, 'sampling', 'temperature', temperature, count(*)
    from called
    group by name, version, temperature

    union all

    select name, version, 'sampling', 'top_p', top_p, count(*)
    from called
    group by name, version, top_p

    union all

    select name, version, 'weights', weight_version::varchar, null, count(*)
    from (
        select used.name, used.version, unnest(calls.weight_versions) as weight_version
        from used
        inner join calls using (episode_id)
    )
    group by name, version, weight_version

    union all

    select name, version, 'table', key, table_versions ->> key, null
    from (select *, unnest(json_keys(table_versions)) as key from made)
)

select *
from facts
where value is not null or amount is not null
