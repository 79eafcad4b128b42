#!/bin/sh
# Has systemd check the units. The daemons need not be installed: for the check they are a program that is.
set -eu
if ! command -v systemd-analyze >/dev/null 2>&1; then
  echo "SKIPPED: systemd-analyze is not installed"
  exit 0
fi
units="$(dirname "$0")"
tmp="$(mktemp -d)"
trap 'rm -rf "$tmp"' EXIT
for unit in weft-driver.service weft-worker@.service; do
  sed 's|^ExecStart=/usr/lib/weft/weft-[a-z]*|ExecStart=/bin/true|' "$units/$unit" > "$tmp/$unit"
  # A unit without the line would pass for the wrong reason.
  grep -q '^ExecStart=/bin/true --' "$tmp/$unit"
done
said="$(cd "$tmp" && systemd-analyze verify --man=no ./weft-driver.service ./weft-worker@w0.service 2>&1)" || failed=1
# Of other units on this machine it may speak too; ours must not be mentioned.
if [ -n "${failed:-}" ] || printf '%s\n' "$said" | grep -q 'weft'; then
  printf 'systemd-analyze verify says:\n%s\n' "$said"
  exit 1
fi
# And the check must be able to fail.
sed 's/^Restart=always/Restart=sometimes/' "$tmp/weft-driver.service" > "$tmp/broken.service"
if ! (cd "$tmp" && systemd-analyze verify --man=no ./broken.service 2>&1) | grep -q 'broken.service:'; then
  echo "systemd-analyze verify accepts a broken unit: this test shows nothing"
  exit 1
fi
