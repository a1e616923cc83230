#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}
here=$(cd "$(dirname "$0")" && pwd)

check() {
  [ -f worst.txt ] || return 1
  [ "$(head -c 1000 worst.txt | sed 's/[[:space:]]*$//')" = "$(cat "$here/worst.txt")" ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
