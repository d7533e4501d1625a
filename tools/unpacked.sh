#!/bin/sh
# Unpacks one of Debian's packages into .cache for tests, and prints the path of a program in it. It is not installed: that would start a service here.
#
# usage: unpacked.sh PACKAGE PATH        such as unpacked.sh prometheus usr/bin/prometheus
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
root="$here/.cache/$1"
program="$root/$2"
if [ ! -x "$program" ]; then
  mkdir -p "$here/.cache"
  work=$(mktemp -d "$here/.cache/$1.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # The lists of packages may not be there yet, as on a bare machine.
  (cd "$work" && { apt-get download "$1" || { apt-get update && apt-get download "$1"; }; }) >&2
  dpkg-deb -x "$work/$1"_*.deb "$work/root"
  # Two calls at once: the first one that is done stays.
  mv -T "$work/root" "$root" 2>/dev/null || [ -x "$program" ]
fi
echo "$program"
