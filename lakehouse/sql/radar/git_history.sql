-- name: git_history
-- sees: a command that reads what git remembers: other revisions, lost objects
-- weight: 1 where a revision or a lost object is taken; 0.5 for reading the log
-- grain: one row per episode with such a command
-- inputs: commands
with found as (
    select
        episode_id,
        action_index,
        regexp_matches(
            command,
            '\bgit\b[^\n;|&]*\b(reflog|fsck|cat-file|unpack-objects|verify-pack|stash (pop|apply|show)|bundle|cherry-pick|revert)\b'
            || '|\bgit\b[^\n;|&]*\b(checkout|show|restore|reset|diff|worktree add)\b[^\n;|&]*(HEAD[~^@]|ORIG_HEAD|FETCH_HEAD|origin/|--source)'
            || '|\bgit\b[^\n;|&]*\blog\b[^\n;|&]*(--all|-p\b|--patch|-S|-G)'
            || '|\.git/(objects|packed-refs|logs|ORIG_HEAD)'
        ) as takes,
        regexp_matches(command, '\bgit\b[^\n;|&]*\b(log|show|blame|rev-list|shortlog|whatchanged|annotate)\b') as reads
    from commands
)

select
    episode_id,
    if(bool_or(takes), 1.0, 0.5)::double as weight,
    'commands: ' || count(*) || ', first at action ' || min(action_index) as detail
from found
where takes or reads
group by episode_id
