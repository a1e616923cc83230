#!/bin/sh
# Copies the text files of one directory to another.
source=$1
target=$2
mkdir $target
count=0
for file in $(ls $source/*.txt); do
  cp $file $target
  count=$((count + 1))
done
echo "$count"
