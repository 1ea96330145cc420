#!/bin/bash
# build.sh ROOT.tar OUT: makes the guest image `debian13` of a Debian 13 root (see packages): real systemd and cloud-init.
#
# Runs as root in a container of ../builder/Dockerfile.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")"); . "$here/../disk.sh"
tar=$1 out=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
root=$work/root; mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$tar"
# What a clone must not share; systemd and cloud-init make them anew.
: > "$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_*_key* "$root/etc/hostname"
cp -r --no-preserve=ownership "$here/rootfs/." "$root/"
# A VM may have no network at all: nothing waits for one.
ln -sf /dev/null "$root/etc/systemd/system/systemd-networkd-wait-online.service"

kernel=$(cd "$root/boot" && ls vmlinuz-*); release=${kernel#vmlinuz-}
mkdir -p "$root/boot/grub"
cat > "$root/boot/grub/grub.cfg" <<G
linux /boot/vmlinuz-$release root=LABEL=root ro console=ttyS0 net.ifnames=0
initrd /boot/initrd.img-$release
boot
G
make_disk "$root" 3G "$out"
