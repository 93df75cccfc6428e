#!/usr/bin/env bash
# The environment of what agents are written with (OpenAI's and Anthropic's SDKs, agent frameworks, mini-swe-agent):
# .venv-clients. The gateway's client tests and docs/examples run in it; nothing of this project is installed there.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fill .venv-clients deploy/requirements/clients.txt
