#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

says() { [ "$(timeout 5 sh ./leap.sh "$1" 2>/dev/null)" = "$2" ]; }

refuses() {
  out=$(timeout 5 sh ./leap.sh "$@" 2>/dev/null)
  [ $? -eq 2 ] && [ -z "$out" ]
}

check() {
  says 2024 yes && says 2023 no && says 1900 no && says 2000 yes && says 2100 no && says 1600 yes && says 4 yes && says 1 no &&
    refuses 0 && refuses -4 && refuses abc && refuses '' && refuses && refuses 20x4 && refuses '2000 1'
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
