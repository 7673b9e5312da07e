#!/bin/sh
# Makes sure that bubblewrap, the sandbox of the arena, is on this machine.
set -eu
if command -v bwrap >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq bubblewrap >/dev/null
else
    echo "bubblewrap is missing: install the package 'bubblewrap' (sudo apt-get install bubblewrap), then run make again" >&2
    exit 1
fi
