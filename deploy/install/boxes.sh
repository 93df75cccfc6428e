#!/usr/bin/env bash
# The root file system every box sees, made once per machine. `--optional` turns a failure into a warning: tests that need
# a box are skipped with the reason.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

make_tools
began=$SECONDS
if .venv/bin/python -m sandboxes.backends; then
    record_seconds $((SECONDS - began))
elif [[ ${1:-} == --optional ]]; then
    say "warning: no box can be started here; going on without"
else
    fail "no box can be started here: code of the model needs Docker or bubblewrap to run in"
fi
