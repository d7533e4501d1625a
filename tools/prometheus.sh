#!/bin/sh
# Unpacks Debian's Prometheus into .cache/prometheus for tests, and prints the path of its program. It is not installed: that would start a service here.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
root="$here/.cache/prometheus"
program="$root/usr/bin/prometheus"
if [ ! -x "$program" ]; then
  mkdir -p "$here/.cache"
  work=$(mktemp -d "$here/.cache/prometheus.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # The lists of packages may not be there yet, as on a bare machine.
  (cd "$work" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; }) >&2
  dpkg-deb -x "$work"/prometheus_*.deb "$work/root"
  # Two calls at once: the first one that is done stays.
  mv -T "$work/root" "$root" 2>/dev/null || [ -x "$program" ]
fi
echo "$program"
