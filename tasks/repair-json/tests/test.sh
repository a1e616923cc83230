#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

check() {
  [ -f config.json ] || return 1
  want='{"name":"gauge","size":[3,4],"labels":{"low":"a,b","high":"http://example.org/x"},"on":true}'
  [ "$(head -c 2000 config.json | tr -d ' \t\r\n')" = "$want" ] && grep -q '"a, b"' config.json
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
