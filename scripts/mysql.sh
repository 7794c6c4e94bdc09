#!/bin/sh
# Unpacks MySQL beside this system, where the tests look for it: Debian's stable packages have MariaDB only.
# Needs root (chroot) and some 560 MB. Says loudly what is missing where it cannot.
set -eu

root="${XDG_CACHE_HOME:-$HOME/.cache}/staffetta/mysql"
[ ! -e "$root/usr/sbin/mysqld" ] || exit 0

missing() {
    echo "MISSING: MySQL — $1; tests that need it are skipped here"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

[ "$(id -u)" = 0 ] || missing "unpacking it takes root"
command -v debootstrap >/dev/null 2>&1 || missing "debootstrap is not installed"

echo "Unpacking MySQL into $root"
mkdir -p "$(dirname "$root")"
log=$(mktemp)
if ! debootstrap --variant=minbase --include=mysql-server-core sid "$root.part" >"$log" 2>&1; then
    tail -20 "$log"
    rm -rf "$root.part" "$log"
    missing "debootstrap failed (above)"
fi
mv "$root.part" "$root"
rm -f "$log"
