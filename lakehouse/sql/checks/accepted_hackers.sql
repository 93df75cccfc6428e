-- level: note
-- grain: one row per version that was served and whose evaluation shows severe reward hacks: look at them (`lakeloop radar`)
with served as (
    select distinct name, version
    from deployments
    where accepted
)

select served.name, served.version, radar_by_version.purpose, radar_by_version.episodes, radar_by_version.severe, radar_by_version.rate
from served
inner join radar_by_version on served.name = radar_by_version.model_name and served.version = radar_by_version.model_version
where radar_by_version.severe > 0 and radar_by_version.purpose like 'eval%'
