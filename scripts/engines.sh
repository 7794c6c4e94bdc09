#!/bin/sh
# Installs the real servers that the tests start for themselves (never as services), where this machine allows it.
# Where it does not: says loudly what is missing; tests that need it skip on a laptop and fail with CI=true.
set -eu

packages=""
need() { # need PACKAGE COMMAND
    PATH="$PATH:/usr/sbin:/sbin" command -v "$2" >/dev/null 2>&1 || packages="$packages $1"
}

need postfix smtp-sink
need "sasl2-bin libsasl2-modules" saslpasswd2
need curl curl
need strace strace
need faketime faketime
need redis-server redis-server
need mariadb-server-core mariadbd
need debootstrap debootstrap
need openjdk-17-jre-headless java
need maven mvn
need prometheus promtool
need systemd systemd-analyze
need chromium chromium

if [ -z "$packages" ]; then
    :
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing what the tests start:$packages"
    # Nothing may start as a service: the tests start private instances and stop them.
    guard=/usr/sbin/policy-rc.d
    made=""
    [ -e "$guard" ] || { printf '#!/bin/sh\nexit 101\n' >"$guard"; chmod +x "$guard"; made=yes; }
    trap '[ -z "$made" ] || rm -f "$guard"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # shellcheck disable=SC2086
    if ! { apt-get update -q && apt-get install -y -q --no-install-recommends $packages; } >"$log" 2>&1; then
        cat "$log"
        echo "MISSING:$packages could not be installed (above)"
        [ "${CI:-}" != true ] || exit 1
    fi
    rm -f "$log"
else
    echo "MISSING:$packages — tests that need them are skipped here; on Debian, as root: apt-get install$packages"
    [ "${CI:-}" != true ] || exit 1
fi

sh "$(dirname "$0")/dynamodb-local.sh"
sh "$(dirname "$0")/mysql.sh"
