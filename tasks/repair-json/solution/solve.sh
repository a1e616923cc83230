#!/bin/sh
set -e
sed -i -e 's| *// the widget||' -e 's/4,\]/4]/' -e 's/"a, b"$/"a, b",/' config.json
