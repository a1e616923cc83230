#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

check() {
  [ -f removed.txt ] || return 1
  want='library/b/verse.txt
library/c/old/verse 1.txt
library/c/zlist.txt'
  [ "$(head -c 1000 removed.txt)" = "$want" ] || return 1
  left=$(find library -type f | LC_ALL=C sort | tr '\n' ' ')
  [ "$left" = 'library/a/list.txt library/a/poem.txt library/b/poem.txt library/c/list.txt library/empty.txt ' ] &&
    [ "$(cat library/a/poem.txt)" = 'the sea
the sea' ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
