#!/usr/bin/env bash
# usage: debian-packages.sh PACKAGE...
# Installs what is missing of these Debian packages when root; else names it in one line and fails.
set -euo pipefail
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
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# A fresh machine has no package lists, an old one stale lists: fetch them only when the first try fails.
install || { apt-get update >/dev/null 2>&1 && install; } || { tail -n 5 "$log" >&2; exit 1; }
