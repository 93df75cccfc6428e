#!/bin/sh
# A Docker engine without networks, for boxes, where none runs. As root. Safe to repeat.
#   deploy/docker-engine.sh start FOLDER   data, log and socket below FOLDER; prints DOCKER_HOST=... as its last line
#   deploy/docker-engine.sh stop FOLDER    ends the engine started there, and no other
set -eu

fail() { echo "error: $*" >&2; exit 1; }

action=${1:-}
folder=${2:-}
[ -n "$folder" ] || fail "usage: $0 start|stop FOLDER"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
socket=$folder/docker.sock
pidfile=$folder/docker.pid
log=$folder/docker.log

answers() { # an engine answers on the Unix socket $1
  python3 - "$1" 2>/dev/null <<'PING'
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.settimeout(5)
link.connect(sys.argv[1])
link.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
sys.exit(0 if b" 200 " in link.recv(200) else 1)
PING
}

ours() { # the process of the pid file is a dockerd of this folder
  [ -s "$pidfile" ] && tr '\0' ' ' <"/proc/$(cat "$pidfile")/cmdline" 2>/dev/null | grep -q "dockerd.*$folder/data"
}

start() {
  for there in "$socket" /var/run/docker.sock; do
    if answers "$there"; then
      echo "a Docker engine answers already"
      echo "DOCKER_HOST=unix://$there"
      return
    fi
  done
  command -v dockerd >/dev/null || fail "dockerd is not installed: apt-get install docker.io"
  [ "$(id -u)" = 0 ] || fail "a Docker engine starts as root only"
  [ ${#socket} -lt 100 ] || fail "$socket is too long for a socket's name: use a shorter folder"
  ours || rm -f "$pidfile"
  setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$pidfile" -H "unix://$socket" \
    --iptables=false --bridge=none --ip-forward=false >"$log" 2>&1 </dev/null &
  started=$!
  for _ in $(seq 120); do
    if answers "$socket"; then
      echo "a Docker engine runs in $folder"
      echo "DOCKER_HOST=unix://$socket"
      return
    fi
    kill -0 "$started" 2>/dev/null || fail "dockerd ended; its log ends with: $(tail -n 3 "$log")"
    sleep 0.5
  done
  kill "$started"
  fail "dockerd did not answer within 60 s; its log ends with: $(tail -n 3 "$log")"
}

stop() {
  ours || { echo "no engine of $folder runs"; return; }
  pid=$(cat "$pidfile")
  kill "$pid"
  for _ in $(seq 60); do
    kill -0 "$pid" 2>/dev/null || { echo "the engine of $folder has ended"; return; }
    sleep 0.5
  done
  fail "dockerd ($pid) did not end within 30 s"
}

case $action in
  start) start ;;
  stop) stop ;;
  *) fail "usage: $0 start|stop FOLDER" ;;
esac
