#!/bin/bash
# leftovers.sh: prints, one a line, what a cluster of VMs has left on this node. Nothing is the good answer.

# Processes: the users' own (a node runs none of them outside of jobs), and the daemons' that belong to a job.
ps -eo pid=,uid=,comm=,args= | awk '
  $2 >= 1500 && $2 < 65000 && !/docker-init|timeout/ { print "process " $0; next }
  $3 ~ /^(vmd-shim|qemu-system|virtiofsd|dnsmasq|slurmstepd)/ { print "process " $0; next }
  $3 == "srun" && /vmd-shim/ { print "process " $0 }'

for directory in /run/muster/jobs /run/muster/vm /var/lib/muster/scratch; do
  [ -d "$directory" ] && find "$directory" -mindepth 1 -maxdepth 1 -printf 'file %p\n'
done

# Slurm's control groups of jobs; the hosts of the lab share a v1 tree, where the name of the node tells whose they are. slurmd sometimes
# fails to remove a freezer group of cgroup v1 when a job ends ("Device or resource busy"), with or without VMs. One without any process,
# on a node without a step daemon, is of that kind: it is removed here, which the kernel only allows where nothing is in it.
find /sys/fs/cgroup -depth -type d \( -name 'job_*' -o -name 'step_*' -o -name 'task_*' \) 2> /dev/null |
  { if [ -e /sys/fs/cgroup/cgroup.controllers ]; then cat; else grep -- "/slurm[^/]*$(hostname)/" || true; fi; } |
  while read -r group; do
    case $group in
      /sys/fs/cgroup/freezer/*) pgrep -x slurmstepd > /dev/null || ! rmdir "$group" 2> /dev/null || continue ;;
    esac
    echo "cgroup $group"
  done

ip -o link show | awk -F': ' '{ sub(/@.*/, "", $2); if ($2 !~ /^(lo|eth0|tunl0|sit0|gre0|gretap0|erspan0|ip_vti0|ip6_vti0|ip6tnl0|ip6gre0)$/) print "link " $2 }'
ip netns list | sed 's/^/netns /'
nft list table inet muster 2> /dev/null | grep -E '^\s+(chain|set|map) [^ ]*[0-9]' | sed 's/^\s*/nft /'
if [ -S /var/run/openvswitch/db.sock ]; then ovs-vsctl --timeout=5 --columns=name --bare find port external_ids:muster-job!='""' | sed '/^$/d; s/^/port /'; fi
exit 0
