-- grain: one row per model version and version that its training started from or read: its parent, and each teacher or reference
select name, version, name as from_name, parent_version as from_version
from model_versions
where parent_version is not null

union

select
    name,
    version,
    regexp_extract(other, '^(.*)@\d+$', 1) as from_name,
    regexp_extract(other, '@(\d+)$', 1)::bigint as from_version
from (select name, version, unnest(learnt_from) as other from model_versions)
