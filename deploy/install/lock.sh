#!/usr/bin/env bash
# Resolve the requirement files again. No index address may end up in a lock: it holds names and versions only.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
make_tools
need_python
need_uv
mapfile -t links < <(find_links)
if [[ -n ${TORCH_INDEX:-} ]]; then links+=(--extra-index-url "$TORCH_INDEX" --index-strategy unsafe-best-match); fi
for name in pipeline dev engine clients camel verl; do
    say "resolving $name.in"
    overrides=(--override deploy/requirements/overrides.txt)
    if [[ -f deploy/requirements/$name-overrides.txt ]]; then overrides+=(--override "deploy/requirements/$name-overrides.txt"); fi
    run_uv pip compile --python-version 3.11 "${links[@]}" "${overrides[@]}" \
        --no-emit-find-links --no-emit-index-url --no-header "$@" "deploy/requirements/$name.in" -o "deploy/requirements/$name.txt"
done
say "done: read the difference with 'git diff deploy/requirements', then run 'make install install-engine install-clients install-camel install-verl test'"
