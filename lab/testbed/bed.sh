#!/usr/bin/env bash
# bed.sh SLOWDISK FORERUN FOLDER FILE_MIB [CONTENTS] - a file on a modelled slow device, and what a
# folder holds, until stdin ends.
#
#   FOLDER/ram   tmpfs with the image: the model alone decides how long a read takes
#   FOLDER/mnt   slowdisk's files: disk, ctl
#   FOLDER/ext   where the caller mounts the loop device: ext4 with one file of the pattern, `data`
#
# Prints `ready LOOP`, or `lacks WHAT` where this machine has no such thing. Takes all of it down
# again when the caller has gone, however it went: run it in a process group of its own.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
slowdisk=$1 forerun=$2 folder=$3 file_mib=$4 contents=${5-}
cgroup=/sys/fs/cgroup/memory/$(basename "$folder")
loop=

# A reader may be at its last read: it is waited for, ten seconds at most.
gone() {
    mountpoint -q "$1" || return 0
    for _ in $(seq 100); do
        umount "$1" 2>/dev/null && return 0
        sleep .1
    done
    umount -l "$1"
}

down() {
    set +e
    gone "$folder/ext"
    [ -z "$loop" ] || losetup -d "$loop"
    gone "$folder/mnt"
    gone "$folder/make"
    gone "$folder/ram"
    rmdir "$folder"/{ext,mnt,make,ram} "$folder"
    [ ! -d "$cgroup" ] || rmdir "$cgroup"
} 2>/dev/null

lacks() {
    echo "lacks $*"
    exit 1
}

trap down EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$folder"/{ext,mnt,make,ram}
image=$folder/ram/disk
others_mib=0
[ -z "$contents" ] || others_mib=$(du -sm "$contents" | cut -f 1)
image_mib=$((file_mib + others_mib * 11 / 10 + 96))
mount -t tmpfs -o size=$((image_mib + 32))m forerun-bed "$folder/ram" || lacks 'the right to mount'
truncate -s ${image_mib}M "$image"
mkfs.ext4 -q -F -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -J size=16 "$image" >&2
mount -o loop "$image" "$folder/make" || lacks 'loop devices'
[ -z "$contents" ] || cp -a "$contents/." "$folder/make"
"$forerun" bench file "$folder/make/data" --make "${file_mib}M" --seconds 0.001 </dev/null >/dev/null
# What git keeps of its files is of the image: they have other inodes there. The index before that
# stays beside it: with it git reads all files, as after a copy or a restore.
for repository in "$folder"/make/*/.git; do
    [ -e "$repository/index" ] || continue
    cp -p "$repository/index" "$repository/index-copied"
    git -C "${repository%/.git}" update-index -q --refresh >/dev/null
done
sync
umount "$folder/make"

"$slowdisk" -m null "$image" "$folder/mnt" </dev/null >/dev/null 2>&1 &
server=$!
# It serves, or ends.
until [ -e "$folder/mnt/ctl" ]; do
    kill -0 "$server" 2>/dev/null || lacks 'FUSE'
    sleep .05
done
# Direct: requests arrive whole and in parallel. Otherwise the loop's one thread has them in turns.
loop=$(losetup -f --show -r --direct-io=on "$folder/mnt/disk") || lacks 'a loop device with direct I/O'
[ ! -d /sys/fs/cgroup/memory ] || mkdir -p "$cgroup"
echo "ready $loop"
cat >/dev/null
