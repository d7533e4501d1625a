#!/bin/sh
# Kills the run that holds the host's lock with SIGKILL as soon as the first CPU has gone.
cd /sys/devices/system/cpu || exit 1
before=$(cat online)
while [ "$(cat online)" = "$before" ]; do :; done
read -r pid _purpose </run/threadwise-smt/lock
kill -9 "$pid"
cat online >/run/killed_at
