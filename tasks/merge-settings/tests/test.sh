#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

check() {
  want='COLOR=dark blue
HOST=box.example
PORT=8080
QUERY=a=3&c==4
TIMEOUT=30 s'
  [ -f merged.env ] && [ "$(head -c 1000 merged.env)" = "$want" ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
