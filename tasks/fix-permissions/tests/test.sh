#!/bin/sh
# Run in the working directory. Writes 1 or 0.
logs=${VERIFIER_LOGS:-/logs/verifier}

mode() { [ "$(stat -c %a "$1" 2>/dev/null)" = "$2" ]; }

check() {
  mode site 755 && mode site/bin 755 && mode site/bin/tools 755 && mode site/keys 700 &&
    mode site/index.html 644 && mode site/bin/notes.md 644 && mode site/bin/deploy.sh 755 &&
    mode 'site/bin/tools/check it.sh' 755 && mode site/keys/host 600 && mode site/keys/user.pub 600 &&
    [ "$(cat site/keys/host site/bin/deploy.sh)" = 'secret
echo deploy' ]
}

reward=0
if check; then reward=1; fi
mkdir -p "$logs" && echo "$reward" > "$logs/reward.txt"
