#!/usr/bin/env bash
# CAMEL's environment: .venv-camel. Its pydantic is older than the other clients', so it stands apart.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fill .venv-camel deploy/requirements/camel.txt
