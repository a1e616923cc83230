#!/bin/sh
set -e
cd photos
for file in ./*; do
  case $file in
    *.[jJ][pP][gG] | *.[jJ][pP][eE][gG]) ;;
    *) continue ;;
  esac
  name=$(printf '%s' "${file%.*}" | tr '[:upper:]' '[:lower:]').jpg
  [ "$file" = "$name" ] || mv -- "$file" "$name"
done
