#!/bin/sh
set -e
find site -type d -exec chmod 755 {} +
find site -type f ! -name '*.sh' -exec chmod 644 {} +
find site -type f -name '*.sh' -exec chmod 755 {} +
chmod 700 site/keys
find site/keys -type f -exec chmod 600 {} +
