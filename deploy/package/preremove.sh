#!/bin/sh
# Run before kdiag is removed ("remove" from dpkg, 0 from rpm), and before an upgrade, which leaves the agent alone.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now kdiag-agent.service || true
