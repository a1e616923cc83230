#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}
here=$(cd "$(dirname "$0")" && pwd)

check() {
  [ -f totals.csv ] || return 1
  [ "$(head -c 1000 totals.csv | tr -d '\r')" = "$(cat "$here/totals.csv")" ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
