#!/usr/bin/env bash
# verl's environment: .venv-verl. Only the test that reads exported files with its dataset classes needs it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fill .venv-verl deploy/requirements/verl.txt
