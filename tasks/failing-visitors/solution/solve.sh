#!/bin/sh
set -e
awk '$9 >= 500 && $9 < 600 { n[$1]++ } END { for (ip in n) print ip, n[ip] }' access.log |
  LC_ALL=C sort -k 2,2nr -k 1,1 | head -n 3 > worst.txt
