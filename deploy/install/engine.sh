#!/usr/bin/env bash
# The CPU engine's environment: .venv-engine. Its fastapi pin and Prefect's do not go together, so it stands apart.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fill .venv-engine deploy/requirements/engine.txt
