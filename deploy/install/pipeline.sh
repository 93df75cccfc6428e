#!/usr/bin/env bash
# The pipeline's environment: .venv, with the project itself in editable form.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fill .venv deploy/requirements/dev.txt yes
