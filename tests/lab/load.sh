#!/bin/bash
# load.sh: in a container of the lab's image without any daemon: does this release of Slurm load the plugin, in each kind of process?
# /plugin holds spank_muster.so. Prints what was tried; the first failure ends it.
set -euo pipefail
PATH=$PATH:/usr/sbin
plugin=/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_muster.so
install -D -m 0644 /plugin/spank_muster.so "$plugin"
mkdir -p /etc/slurm /etc/muster
printf '%s\n' ClusterName=load SlurmctldHost=localhost SlurmUser=root AuthType=auth/munge "SlurmdSpoolDir=/tmp" \
  "NodeName=localhost CPUs=1" "PartitionName=main Nodes=ALL Default=YES" > /etc/slurm/slurm.conf
echo "required $plugin" > /etc/slurm/plugstack.conf
printf 'tiny:\n  image: /tiny.qcow2\n' > /etc/muster/templates.yaml

fail() { echo "FAILED: $1"; echo "$2"; exit 1; }

for command in srun sbatch salloc; do
  help=$($command --help 2>&1) || fail "$command --help" "$help"
  grep -q -- '--vm=' <<< "$help" || fail "$command --help does not know --vm" "$help"
  ! grep -q 'error:' <<< "$help" || fail "$command --help complains" "$help"
  echo "ok: $command --help shows --vm"
done

said=$(timeout 10 sbatch --vm=tinny --wrap=true 2>&1) && fail "sbatch took a template that does not exist" "$said"
grep -q "no template 'tinny' (did you mean 'tiny'?)" <<< "$said" || fail "sbatch does not say what is wrong" "$said"
echo "ok: sbatch refuses an unknown template"

for context in prolog epilog; do
  said=$(env -i SLURM_JOBID=1 SLURM_JOB_ID=1 SLURM_UID=1500 SLURM_JOB_UID=1500 SLURM_JOB_GID=1500 \
    timeout 10 "$(command -v slurmstepd)" spank $context < /dev/null 2>&1) || fail "slurmstepd spank $context: status $?" "$said"
  ! grep -qi 'error' <<< "$said" || fail "slurmstepd spank $context complains" "$said"
  echo "ok: slurmstepd spank $context, for a job without VMs"
done
