#!/usr/bin/env bash
# usage: debian-packages.sh PACKAGE...
# Installs what is missing of these Debian packages when root; else names it in one line and fails.
set -euo pipefail
# apt's own lock is not waited for while lists are fetched: what these tools start side by side waits here.
[ "$(id -u)" -ne 0 ] || { exec 9>/run/threadwise-smt-packages.lock; flock 9; }
missing=()
for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "missing Debian packages: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "installing Debian packages: ${missing[*]}"
log=$(mktemp)
# Tests start servers of their own: a package of a database is not to make and start one besides.
no_cluster=/etc/postgresql-common/createcluster.d/threadwise-smt-tools.conf
# Neither is any other server to run that a package brings (policy-rc.d, Debian Policy 9.3.3.1).
policy=/usr/sbin/policy-rc.d
[ ! -e "$policy" ] || policy=
clean() { rm -f "$log" "$no_cluster" ${policy:+"$policy"}; }
trap clean EXIT
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
    mkdir -p "${no_cluster%/*}"
    echo "create_main_cluster = false" >"$no_cluster"
fi
[ -z "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; }
export DEBIAN_FRONTEND=noninteractive
# Another apt may be at work: it is waited for. A daemon that a package starts is not to hold the lock above.
install() { apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 "${missing[@]}" >"$log" 2>&1 9>&-; }
# A fresh machine has no package lists, an old one stale lists: fetch them only when the first try fails.
install || { apt-get update >/dev/null 2>&1 9>&- && install; } || { tail -n 5 "$log" >&2; exit 1; }
