#!/bin/bash
# build.sh OUT: makes the guest image `tiny`: Debian's cloud kernel and a busybox initramfs, booted by the disk's own boot loader.
#
# Runs as root in a container of ../builder/Dockerfile. The guest lives in its initramfs; its disk is mounted on /disk.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")"); . "$here/../disk.sh"
out=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# Loaded in the order in which their dependencies allow.
modules="virtio_pci virtio_blk virtio_net virtio_rng virtio_console button evdev ext4"

cd "$work"
apt-get update -qq
image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: *\(linux-image-[^ ]*\)$/\1/p' | head -n 1)
[ -n "$image" ] || { echo "build.sh: no linux-image-cloud-amd64 among the packages" >&2; exit 1; }
apt-get download -qq "$image"
dpkg-deb -x "$image"_*.deb kernel
release=${image#linux-image-}
# The package keeps its modules in /usr/lib or /lib, by release.
[ -d kernel/lib/modules ] || { mkdir -p kernel/lib; ln -s ../usr/lib/modules kernel/lib/modules; }
depmod -b kernel "$release"

mkdir -p initramfs/{bin,dev,disk,etc,lib/modules,proc,root,run,sys,tmp}
cp /bin/busybox initramfs/bin/
cp -a "$here/rootfs/." initramfs/
for module in $modules; do
  # A module built into the kernel prints `builtin`.
  modprobe -d kernel -S "$release" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
  name=$(basename "$file"); name=${name%.xz}
  case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac > "initramfs/lib/modules/$name"
  echo "$name" >> initramfs/lib/modules/order
done
chmod 0755 initramfs/init initramfs/etc/acpi/PWRF/00000080
chown -R 0:0 initramfs

mkdir -p root/boot/grub
(cd initramfs && find . | LC_ALL=C sort | cpio -o -H newc --quiet | gzip -9) > root/boot/initrd.img
cp "kernel/boot/vmlinuz-$release" root/boot/vmlinuz
cat > root/boot/grub/grub.cfg <<'G'
linux /boot/vmlinuz console=ttyS0 quiet panic=-1
initrd /boot/initrd.img
boot
G
make_disk root 64M "$out"
