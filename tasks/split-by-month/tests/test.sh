#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}
here=$(cd "$(dirname "$0")" && pwd)

check() {
  cmp -s ledger.csv "$here/ledger.csv" && [ -d months ] || return 1
  want=$(sed 1d "$here/ledger.csv" | cut -c 1-7 | sort -u)
  [ "$(ls months)" = "$(echo "$want" | sed 's/$/.csv/')" ] || return 1
  for month in $want; do
    { head -n 1 "$here/ledger.csv"; grep "^$month" "$here/ledger.csv"; } | cmp -s - "months/$month.csv" || return 1
  done
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
