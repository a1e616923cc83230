#!/bin/sh
set -e
cut -d ' ' -f 2 app.log | sort | uniq -c | sort -k 1,1nr | awk '{ print $2, $1 }' > levels.txt
