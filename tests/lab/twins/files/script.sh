#!/bin/sh
echo "script said $1"
echo "$1" > /srv/commands/by-script
