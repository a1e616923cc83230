#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

try() { [ "$(timeout 5 sh ./backup.sh "$1" "$2" 2>/dev/null)" = "$3" ]; }

check() {
  dir=$(mktemp -d) || return 1
  mkdir "$dir/my notes" "$dir/none" "$dir/there"
  echo one > "$dir/my notes/a b.txt"
  echo two > "$dir/my notes/-c.txt"
  echo two > "$dir/my notes/star *.txt"
  echo three > "$dir/my notes/d.md"
  try "$dir/my notes" "$dir/new place" 3 &&
    try "$dir/none" "$dir/empty" 0 &&
    try notes "$dir/there" 2 &&
    cmp -s "$dir/my notes/a b.txt" "$dir/new place/a b.txt" &&
    cmp -s "$dir/my notes/star *.txt" "$dir/new place/star *.txt" &&
    [ ! -e "$dir/new place/d.md" ]
  ok=$?
  rm -rf "$dir"
  return $ok
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
