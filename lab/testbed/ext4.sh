#!/usr/bin/env bash
# ext4.sh FORERUN FOLDER [ROUNDS] - an ext4 behind `forerun serve`, whose server is killed while files
# are written: after each kill the file system is repaired as after a power cut, is clean then, and
# has every file that was synced.
#
#   image --forerun serve--> nbdfuse --loop--> ext4     kill -9 of the server, at a random time
#
# Needs root, nbdfuse, loop devices and e2fsprogs.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -euo pipefail
forerun=$1 folder=$2 rounds=${3:-20}
mkdir -p "$folder"/{mnt,fs}
folder=$(cd "$folder" && pwd)
image=$folder/disk.img disk=$folder/mnt/nbd fs=$folder/fs
[ ! -e "$image" ] || { echo "$image is there already" >&2; exit 1; }
truncate -s 256M "$image"

up() {
    "$forerun" serve --mode write-back --cache 64M --socket "$folder/s" "$image" 2>"$folder/said" &
    server=$!
    until grep -q serving "$folder/said" 2>/dev/null; do sleep .02; done
    nbdfuse "$disk" "nbd+unix:///disk.img?socket=$folder/s" &
    fuse=$!
    until [ -e "$disk" ]; do sleep .02; done
}

down() {
    umount -l "$fs" 2>/dev/null || true
    losetup -j "$disk" 2>/dev/null | cut -d: -f1 | xargs -r losetup -d || true
    fusermount3 -uz "$folder/mnt" 2>/dev/null || true
    kill -9 "${fuse:-}" "${server:-}" 2>/dev/null || true
    wait 2>/dev/null || true
}
trap down EXIT

up
mkfs.ext4 -q -F "$disk"
for round in $(seq "$rounds"); do
    mount -o loop "$disk" "$fs"
    if [ -f "$fs/sums" ]; then (cd "$fs" && md5sum --quiet -c sums); fi
    mkdir "$fs/$round"
    for nth in $(seq 20); do head -c $((RANDOM * 8)) /dev/urandom >"$fs/$round/$nth"; done
    (cd "$fs" && md5sum "$round"/* >>sums)
    sync -f "$fs/sums"
    (for nth in $(seq 200); do head -c 200000 /dev/urandom >"$fs/$round/unsynced-$nth"; done) 2>/dev/null &
    writer=$!
    sleep ".$((RANDOM % 6 + 1))"
    kill -9 "$server"
    kill "$writer" 2>/dev/null || true
    down
    : >"$folder/said"
    up
    # 1: it was repaired, from its journal.
    repaired=0
    e2fsck -fp "$disk" >"$folder/e2fsck" 2>&1 || repaired=$?
    [ "$repaired" -le 1 ] || { cat "$folder/e2fsck"; exit 1; }
    e2fsck -fn "$disk" >"$folder/e2fsck" 2>&1 || { cat "$folder/e2fsck"; exit 1; }
    echo "round $round: e2fsck -p ended with $repaired, and is clean"
done
mount -o loop "$disk" "$fs"
(cd "$fs" && md5sum --quiet -c sums && echo "$(wc -l <sums) synced files are right")
