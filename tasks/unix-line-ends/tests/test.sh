#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

check() {
  [ "$(head -c 99 changed.txt 2>/dev/null)" = 3 ] || return 1
  [ "$(cksum < docs/icon.bin)" = "$(printf 'x\r\ny\r\n' | cksum)" ] &&
    [ "$(cksum < docs/guide.txt)" = "$(printf 'one\ntwo\nthree\n' | cksum)" ] &&
    [ "$(cksum < docs/deep/er/readme.md)" = "$(printf '# title\n\ntext\n' | cksum)" ] &&
    [ "$(cksum < 'docs/with space.md')" = "$(printf 'a\nb\n' | cksum)" ] &&
    [ "$(cksum < docs/unix.txt)" = "$(printf 'fine\n' | cksum)" ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
