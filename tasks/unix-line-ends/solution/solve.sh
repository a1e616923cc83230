#!/bin/sh
set -e
cr=$(printf '\r')
find docs -type f \( -name '*.txt' -o -name '*.md' \) -exec grep -l "$cr" {} + > list.tmp
while IFS= read -r file; do
  sed -i "s/$cr\$//" "$file"
done < list.tmp
wc -l < list.tmp > changed.txt
rm list.tmp
