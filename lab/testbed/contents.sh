#!/usr/bin/env bash
# contents.sh SOURCES FOLDER MIB PYTHON - files for programs to read, and programs for it.
#
#   FOLDER/files/data.tar           MIB of this system's sources and libraries, as tar packs them
#   FOLDER/files/{data.tar.zst,lines,base.db,tree/,model.safetensors}    of that, or of its size
#   FOLDER/files/{headers/,shuffled}    /usr/include, and 2,000 of its files in no order
#   FOLDER/files/repo/              800 of its files in a git repository, packed
#   FOLDER/files/{opens/,twice}     10,000 files of 6 KiB, and these in no order, twice
#   FOLDER/files/c/                 300 C files and 150 headers, with a makefile
#   FOLDER/bin/{reader,gosum}       programs that are linked statically
#
# What a missing tool would make is left out. Twice is once.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
sources=$1 folder=$2 mib=$3 python=$4
files=$folder/files bin=$folder/bin
has() { command -v "$1" >/dev/null; }
programs() {
    cc -O2 -static -pthread -o "$bin/reader" "$sources/reader.c"
    ! has go || CGO_ENABLED=0 go build -o "$bin/gosum" "$sources/reader.go"
}
if [ -e "$folder/made-3-$mib" ]; then
    [ "$bin/reader" -nt "$sources/reader.c" ] || programs
    exit 0
fi
rm -rf "$folder"
mkdir -p "$files/tree" "$bin"

# tar is told that the pipe is closed; that is no failure.
(cd / && tar cf - usr/include usr/share/doc usr/lib/python3* usr/lib 2>/dev/null || true) | head -c "${mib}M" >"$files/data.tar"
[ "$(stat -c %s "$files/data.tar")" -eq $((mib << 20)) ] || { echo 'too few files in /usr' >&2; exit 1; }
! has zstd || zstd -q -3 "$files/data.tar" -o "$files/data.tar.zst"
base64 -w 75 "$files/data.tar" | head -c $((mib / 2))M >"$files/lines"
split -b 48K -a 5 "$files/data.tar" "$files/tree/"
cp -r /usr/include "$files/headers"
(cd "$files" && find headers -type f | LC_ALL=C sort | shuf --random-source=lines -n 2000) >"$folder/shuffled"
mv "$folder/shuffled" "$files"
mkdir "$files/repo"
(cd "$files/headers" && find . -type f | LC_ALL=C sort | head -n 800 | xargs cp --parents -t ../repo)
if has git; then
    git="git -C $files/repo -c user.name=bench -c user.email=bench@localhost"
    $git init -q -b main && $git add . && $git commit -q -m headers && $git repack -adq
fi
mkdir "$files/opens"
head -c 60M "$files/data.tar" | split -b 6K -d -a 5 - "$files/opens/"
for hundred in $(seq -w 0 102); do
    mkdir "$files/opens/in-$hundred"
    mv "$files/opens/$hundred"[0-9][0-9] "$files/opens/in-$hundred"
done
(cd "$files" && for _ in 1 2; do
    find opens -type f | LC_ALL=C sort | shuf --random-source=lines -n 10000
done >twice)
mkdir -p "$files/c/inc"
for at in $(seq 0 149); do
    seq -f "int h${at}_%g(int);" 40 >"$files/c/inc/h$at.h"
done
for at in $(seq 0 299); do
    {
        for add in 0 37 91; do echo "#include \"inc/h$(((at + add) % 150)).h\""; done
        seq -f "int f${at}_%g(int a) { return h$((at % 150))_1(a); }" 60
    } >"$files/c/f$at.c"
done
printf '%s\n' 'OUT = .' 'ALL = $(patsubst %.c,$(OUT)/%.o,$(wildcard *.c))' 'all: $(ALL)' \
    '$(OUT)/%.o: %.c' '	$(CC) -O0 -c -o $@ $<' >"$files/c/Makefile"
if has sqlite3; then
    sqlite3 "$files/base.db" "create table rows(id integer primary key, body blob);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < $((mib * 512)))
        insert into rows select i, randomblob(2000) from n"
fi
"$python" "$sources/tensors.py" make "$files/model.safetensors" "$mib" 2>/dev/null ||
    rm -f "$files/model.safetensors"
programs
touch "$folder/made-3-$mib"
