#!/bin/bash
# setup.sh: makes a fresh container of the image a host of the lab. /lab holds what is installed.
set -euo pipefail
mount -o remount,rw /proc/sys

# cgroup v2: a group that hands out controllers must hold no process itself.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -o remount,rw /sys/fs/cgroup
  mkdir -p /sys/fs/cgroup/init
  while read -r pid; do echo "$pid" > /sys/fs/cgroup/init/cgroup.procs || true; done < /sys/fs/cgroup/cgroup.procs
fi

# Stand-ins for GPUs: Slurm only looks whether they exist.
for i in 0 1; do [ -e "/dev/lab-gpu$i" ] || mknod "/dev/lab-gpu$i" c 1 3; done

# Alice is in a group, bob is in none but his own.
groupadd --gid 1600 physics
usermod --append --groups physics alice
for user in alice bob; do install -d -m 0700 -o "$user" -g "$user" "/home/$user"; done
install -d /var/spool/slurmctld /var/spool/slurmd /var/log/slurm /var/log/muster /etc/slurm
cp -a /lab/root/. /

if [ -d /lab/bin ]; then
  install -m 0755 /lab/bin/vmd /usr/sbin/vmd
  install -D -m 0755 /lab/bin/vmd-shim /usr/libexec/muster/vmd-shim
  install -m 0755 /lab/bin/muster /usr/bin/muster
  install -m 0644 /lab/bin/spank_muster.so /usr/lib/x86_64-linux-gnu/slurm-wlm/spank_muster.so
fi

install -d -m 0700 -o munge -g munge /etc/munge /var/log/munge /var/lib/munge
install -d -m 0755 -o munge -g munge /run/munge
install -m 0400 -o munge -g munge /lab/munge.key /etc/munge/munge.key
runuser -u munge -- /usr/sbin/munged
