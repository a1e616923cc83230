#!/bin/sh
for pair in 2024:yes 2023:no 1900:no 2000:yes; do
  got=$(sh leap.sh "${pair%:*}")
  [ "$got" = "${pair#*:}" ] || echo "${pair%:*}: got $got, want ${pair#*:}"
done
