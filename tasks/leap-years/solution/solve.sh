#!/bin/sh
set -e
cat > leap.sh <<'END'
#!/bin/sh
year=$1
case $year in
  '' | *[!0-9]*) year=0 ;;
esac
if [ "$year" -lt 1 ]; then
  echo "leap.sh: give a year of at least 1" >&2
  exit 2
fi
if [ $((year % 4)) -eq 0 ] && [ $((year % 100)) -ne 0 ] || [ $((year % 400)) -eq 0 ]; then
  echo yes
else
  echo no
fi
END
