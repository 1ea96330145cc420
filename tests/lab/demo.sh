#!/bin/bash
# What alice runs in her allocation: a look at the virtual cluster beside her shell.
set -euo pipefail
show() { printf '\nalice@ctl$ %s\n' "$*"; "$@"; }

show muster wait --timeout 120
show muster ps
show muster show
show squeue -s
for vm in vm0 vm1; do
  printf '\nalice@ctl$ muster console -l %s      # repeated until the guest asks for a login\n' "$vm"
  for _ in $(seq 120); do
    log=$(muster console -l "$vm")
    ! grep -q 'login:' <<< "$log" || break
    sleep 0.5
  done
  echo "$log"
  grep -q 'login:' <<< "$log" || { echo "$vm: no login within a minute" >&2; exit 1; }
done
