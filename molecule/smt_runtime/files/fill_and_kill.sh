#!/bin/sh
# As soon as the first CPU has gone, fills the disk with the state, and kills the run that holds the host's lock.
cd /sys/devices/system/cpu || exit 1
before=$(cat online)
while [ "$(cat online)" = "$before" ]; do :; done
read -r pid _purpose </run/threadwise-smt/lock
kill -STOP "$pid"
cat /dev/zero >/var/lib/threadwise-smt/filler
cat online >/run/killed_at
kill -9 "$pid"
