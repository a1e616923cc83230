#!/bin/sh
set -e
{
  echo region,total
  awk -F , 'NR > 1 { t[$2 == "" ? "unknown" : $2] += $4 * $5 } END { for (r in t) printf "%s,%.2f\n", r, t[r] }' orders.csv | sort
} > totals.csv
