#!/usr/bin/env bash
# contents.sh SOURCES FOLDER MIB PYTHON - files for programs to read, and programs for it.
#
#   FOLDER/files/data.tar           MIB of this system's sources and libraries, as tar packs them
#   FOLDER/files/{data.tar.zst,lines,base.db,tree/,model.safetensors}    of that, or of its size
#   FOLDER/files/{headers/,shuffled}    /usr/include, and 2,000 of its files in no order
#   FOLDER/bin/{reader,gosum}       programs that are linked statically
#
# What a missing tool would make is left out. Twice is once.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
sources=$1 folder=$2 mib=$3 python=$4
files=$folder/files bin=$folder/bin
[ ! -e "$folder/made-2-$mib" ] || exit 0
rm -rf "$folder"
mkdir -p "$files/tree" "$bin"
has() { command -v "$1" >/dev/null; }

# tar is told that the pipe is closed; that is no failure.
(cd / && tar cf - usr/include usr/share/doc usr/lib/python3* usr/lib 2>/dev/null || true) | head -c "${mib}M" >"$files/data.tar"
[ "$(stat -c %s "$files/data.tar")" -eq $((mib << 20)) ] || { echo 'too few files in /usr' >&2; exit 1; }
! has zstd || zstd -q -3 "$files/data.tar" -o "$files/data.tar.zst"
base64 -w 75 "$files/data.tar" | head -c $((mib / 2))M >"$files/lines"
split -b 48K -a 5 "$files/data.tar" "$files/tree/"
cp -r /usr/include "$files/headers"
(cd "$files" && find headers -type f | LC_ALL=C sort | shuf --random-source=lines -n 2000) >"$folder/shuffled"
mv "$folder/shuffled" "$files"
if has sqlite3; then
    sqlite3 "$files/base.db" "create table rows(id integer primary key, body blob);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < $((mib * 512)))
        insert into rows select i, randomblob(2000) from n"
fi
"$python" "$sources/tensors.py" make "$files/model.safetensors" "$mib" 2>/dev/null ||
    rm -f "$files/model.safetensors"
cc -O2 -static -o "$bin/reader" "$sources/reader.c"
! has go || CGO_ENABLED=0 go build -o "$bin/gosum" "$sources/reader.go"
touch "$folder/made-2-$mib"
