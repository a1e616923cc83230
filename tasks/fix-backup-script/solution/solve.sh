#!/bin/sh
set -e
cat > backup.sh <<'END'
#!/bin/sh
# Copies the text files of one directory to another.
source=$1
target=$2
mkdir -p -- "$target"
count=0
for file in "$source"/*.txt; do
  [ -f "$file" ] || continue
  cp -- "$file" "$target"
  count=$((count + 1))
done
echo "$count"
END
