#!/bin/sh
set -e
find library -type f | LC_ALL=C sort > all.tmp
while IFS= read -r file; do
  sum=$(cksum < "$file")
  if grep -qxF -e "$sum" seen.tmp 2>/dev/null; then
    rm -- "$file"
    printf '%s\n' "$file"
  else
    printf '%s\n' "$sum" >> seen.tmp
  fi
done < all.tmp > removed.txt
rm -f all.tmp seen.tmp
