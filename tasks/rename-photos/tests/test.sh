#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

holds() { [ "$(head -c 99 "photos/$1" 2>/dev/null)" = "$2" ]; }

check() {
  holds img_0007.jpg seven && holds img_0012.jpg twelve && holds 'beach day.jpg' beach && holds sunset.jpg sunset &&
    holds -dash-.jpg dash && holds 'Old Map.PNG' map && holds README.txt 'two cameras' &&
    [ "$(find photos -type f | wc -l)" -eq 7 ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
