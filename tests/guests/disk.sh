# disk.sh: sourced by the recipes. Makes a bootable qcow2 of a directory, with neither loop device nor mount.
#
#     make_disk ROOT SIZE OUT    # ROOT: directory with /boot/grub/grub.cfg; SIZE: of the disk, as truncate takes it
#
# One ext4 partition labelled `root` that starts at 1 MiB. The boot loader is GRUB: its core image, with the modules
# that read the partition built in, lies in the gap behind the MBR, where boot.img looks for it (sector 1).

make_disk() {
  local root=$1 size=$2 out=$3 work
  work=$(mktemp -d)
  truncate -s "$size" "$work/disk.raw"
  echo 'start=2048, type=83, bootable' | sfdisk -q "$work/disk.raw"
  local blocks=$(( ($(stat -c %s "$work/disk.raw") - 1048576) / 4096 ))
  mkfs.ext4 -q -b 4096 -L root -m 0 -O ^metadata_csum_seed,^orphan_file -E offset=1048576,lazy_itable_init=1,lazy_journal_init=1 \
    -d "$root" "$work/disk.raw" "$blocks"
  grub-mkimage -O i386-pc -o "$work/core.img" -p '(hd0,msdos1)/boot/grub' biosdisk part_msdos ext2 normal linux
  [ "$(stat -c %s "$work/core.img")" -lt $(( 2047 * 512 )) ]
  dd if=/usr/lib/grub/i386-pc/boot.img of="$work/disk.raw" bs=440 count=1 conv=notrunc status=none
  dd if="$work/core.img" of="$work/disk.raw" bs=512 seek=1 conv=notrunc status=none
  qemu-img convert -O qcow2 "$work/disk.raw" "$out"
  rm -rf "$work"
}
