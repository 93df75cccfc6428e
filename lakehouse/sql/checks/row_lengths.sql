-- grain: one row per training row whose lists do not have one value per input id: there must be none
-- (retention empties the ids of a source with a rule of its own and leaves the other lists)
select training_set_id, row_index, len(input_ids) as ids, len(loss_mask) as mask, len(logprobs) as logprobs, len(weight_versions) as versions
from training_rows
where
    len(input_ids) > 0
    and (
        len(loss_mask) <> len(input_ids)
        or len(logprobs) <> len(input_ids)
        or len(weight_versions) <> len(input_ids)
        or (advantages is not null and len(advantages) <> len(input_ids))
    )
