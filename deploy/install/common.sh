# Sourced by the scripts beside it: messages, Python 3.11, uv, and environments that remember what they hold.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tools=$root/.venv-tools # uv, logs and durations; made again when missing
part=$(basename "$0" .sh)
cd "$root"

say() { printf '%s: %s\n' "$part" "$*"; }
fail() {
    printf '%s: error: %s\n' "$part" "$*" >&2
    exit 1
}

make_tools() {
    mkdir -p "$tools/logs" "$tools/seconds"
    printf '*\n' >"$tools/.gitignore"
}

# Seconds that a part took when it was last really installed: `make quickstart` adds them up.
record_seconds() { printf '%s\n' "$1" >"$tools/seconds/$part"; }

may_apt() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
    local log=$tools/logs/apt.log
    if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } \
        >"$log" 2>&1 </dev/null; then
        fail "apt-get could not install $* (no network, or no such package here): see $log"
    fi
}

# A shim may be on PATH without a Python behind it, so each candidate is started.
is_python311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; }

# Sets `python`: $PYTHON, python3.11 or python3, whichever is 3.11; as root on Debian it is installed when missing.
need_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3; do
        if is_python311 "$candidate"; then
            python=$(command -v "$candidate")
            return
        fi
    done
    if may_apt && apt-cache show python3.11 >/dev/null 2>&1; then
        say "installing python3.11 with apt-get"
        apt_install python3.11 python3.11-venv
        python=$(command -v python3.11)
        return
    fi
    fail "no Python 3.11: install it (Debian 12: apt-get install python3.11 python3.11-venv) or name one with PYTHON=/path/to/python3.11"
}

# Sets `uv`: the one on PATH, else one of our own under .venv-tools.
need_uv() {
    local log=$tools/logs/uv.log
    if uv --version >/dev/null 2>&1; then
        uv=uv
        return
    fi
    uv=$tools/bin/uv
    if "$uv" --version >/dev/null 2>&1; then return; fi
    say "fetching uv into .venv-tools"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        may_apt || fail "no uv, and this Python has no venv: install python3.11-venv or uv"
        apt_install python3.11-venv
    fi
    if ! { "$python" -m venv "$tools" && "$tools/bin/python" -m pip install -q uv; } >"$log" 2>&1; then
        fail "uv could not be installed from the package index (no network?): see $log"
    fi
    make_tools # venv may have written a .gitignore of its own
}

# The line that says what to do, from uv's own words.
why_uv_failed() {
    local log=$1
    if grep -q 'torch==.*+cpu' "$log" && [[ -z ${TORCH_INDEX:-} ]]; then
        printf "PyTorch's CPU build was not found: set TORCH_INDEX to PyTorch's CPU wheel index, or PIP_FIND_LINKS to a folder with the wheel"
    elif grep -qiE 'no solution|no version|not found in the package registry' "$log"; then
        printf 'a locked package was not found: %s' "$(grep -m1 -iE 'because|not found' "$log")"
    elif grep -qiE 'dns|failed to fetch|connect|timed out|network' "$log"; then
        printf 'the package index does not answer (no network?)'
    elif grep -qi 'no space' "$log"; then
        printf 'the disk is full'
    else
        grep -m1 '^error:' "$log" || tail -n 1 "$log"
    fi
}

run_uv() {
    local log=$tools/logs/$part.log
    "$uv" -q "$@" >"$log" 2>&1 </dev/null || fail "$(why_uv_failed "$log"); uv's own words: $log"
}

# Options that let uv see wheels on this machine's disk; pip knows the variable, uv does not.
find_links() {
    local place
    for place in ${PIP_FIND_LINKS:-}; do printf -- '--find-links\n%s\n' "$place"; done
}

# fill FOLDER LOCK [yes]: an environment that holds exactly the locked versions, and the project itself when the third
# argument is "yes". Nothing happens when its stamp carries the hash of the same lock.
fill() {
    local folder=$1 lock=$2 project=${3:-no} began=$SECONDS wanted torch
    local -a links
    wanted=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
    if [[ -x $folder/bin/python && $(cat "$folder/.lock-hash" 2>/dev/null) == "$wanted" ]]; then
        say "$folder is up to date"
        return
    fi
    make_tools
    need_python
    need_uv
    if ! is_python311 "$folder/bin/python"; then
        say "creating $folder with $python"
        run_uv venv --clear --python "$python" "$folder"
    fi
    say "installing $(grep -c '==' "$lock") locked packages into $folder (one to five minutes when nothing is cached)"
    mapfile -t links < <(find_links)
    torch=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$lock") # empty where the lock has none
    if [[ -n ${TORCH_INDEX:-} && -n $torch ]]; then # only torch is taken from there, so that it can stand in for nothing else
        run_uv pip install --python "$folder/bin/python" --compile-bytecode --no-deps --index-url "$TORCH_INDEX" "$torch"
    fi
    run_uv pip install --python "$folder/bin/python" --compile-bytecode "${links[@]}" --no-deps -r "$lock"
    if [[ $project == yes ]]; then
        run_uv pip install --python "$folder/bin/python" "${links[@]}" --no-deps -e .
    fi
    printf '%s\n' "$wanted" >"$folder/.lock-hash"
    record_seconds $((SECONDS - began))
    say "$folder is ready after $((SECONDS - began)) s"
}
