#!/bin/sh
set -e
mkdir -p months
for month in $(sed 1d ledger.csv | cut -c 1-7 | sort -u); do
  { head -n 1 ledger.csv; grep "^$month" ledger.csv; } > "months/$month.csv"
done
