#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}
here=$(cd "$(dirname "$0")" && pwd)

check() {
  [ -f levels.txt ] || return 1
  want=$(cut -d ' ' -f 2 "$here/app.log" | sort | uniq -c | sort -k 1,1nr | awk '{ print $2, $1 }')
  [ "$(head -c 1000 levels.txt | sed 's/[[:space:]]*$//')" = "$want" ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
