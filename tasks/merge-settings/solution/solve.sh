#!/bin/sh
set -e
awk '
  /^#/ || !/=/ { next }
  { key = substr($0, 1, index($0, "=") - 1); value[key] = substr($0, index($0, "=") + 1) }
  END { for (key in value) if (value[key] != "") print key "=" value[key] }
' base.env local.env | LC_ALL=C sort > merged.env
