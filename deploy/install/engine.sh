#!/usr/bin/env bash
# The CPU engine's environment: .venv-engine. Its fastapi pin and Prefect's do not go together, so it stands apart.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [[ ${ENGINE:-} == no ]]; then
    say "skipped, because ENGINE=no"
    exit 0
fi
fill .venv-engine deploy/requirements/engine.txt
