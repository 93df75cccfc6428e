#!/usr/bin/env bash
# Programs that sandboxes need and no Python package brings. `--optional` turns what cannot be had into a warning:
# one of Docker and bubblewrap is enough to run, and the run itself says so when both are missing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

declare -A package_of=([dockerd]=docker.io [bwrap]=bubblewrap [mmdebstrap]=mmdebstrap [tini]=tini)
PATH=$PATH:/usr/sbin:/sbin # where dockerd lives, and not on every user's PATH
missing=()
for program in dockerd bwrap mmdebstrap tini; do
    if [[ $program == dockerd ]] && docker version >/dev/null 2>&1; then continue; fi # an engine answers already
    command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
if [[ ${#missing[@]} == 0 ]]; then
    say "nothing is missing"
    exit 0
fi
if may_apt; then
    make_tools
    began=$SECONDS
    say "installing ${missing[*]} with apt-get"
    apt_install "${missing[@]}"
    record_seconds $((SECONDS - began))
    say "ready after $((SECONDS - began)) s"
    exit 0
fi
if command -v apt-get >/dev/null; then
    advice="not root, so run 'sudo apt-get install --no-install-recommends ${missing[*]}'"
else
    advice="no apt-get here, so install them with this system's own package manager"
fi
if [[ ${1:-} == --optional ]]; then
    say "warning: missing ${missing[*]}: $advice; going on without"
else
    fail "missing ${missing[*]}: $advice"
fi
