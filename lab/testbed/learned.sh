#!/usr/bin/env bash
# learned.sh FOLDER PYTHON - programs that start, and what they start from: `bench learned`.
#
#   FOLDER/site      what `import pandas` imports      FOLDER/node     1,000 modules, and their main
#   FOLDER/app.jar   40 MiB, of which a part is used   FOLDER/repo     a git repository of 5,000 files
#   FOLDER/large.db  200 MiB, and 200 queries          FOLDER/{perl,ruby}   modules of this system
#
# What a missing tool would make is left out. Twice is once.
# SPDX-License-Identifier: MIT OR Apache-2.0
set -eu
folder=$1 python=$2
[ ! -e "$folder/.made-1" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder"
has() { command -v "$1" >/dev/null; }

# pandas of this Python, or of the package index where one is reached.
if site=$("$python" -c 'import pandas, os; print(os.path.dirname(os.path.dirname(pandas.__file__)))' 2>/dev/null); then
    mkdir "$folder/site"
    for name in pandas numpy dateutil pytz tzdata six.py pandas.libs numpy.libs; do
        [ ! -e "$site/$name" ] || cp -r "$site/$name" "$folder/site"
    done
else
    "$python" -m pip -q install --target "$folder/site" --no-compile pandas >&2 || rm -rf "$folder/site"
fi
[ ! -d "$folder/site" ] || "$python" -m compileall -q "$folder/site" >/dev/null || true

"$python" - "$folder" <<'MAKE'
import os, random, sys
root, rng = sys.argv[1], random.Random(23)

def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)

def body(lines):
    word = lambda: "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9))
    return "".join(f"// {word()} {word()} {word()} {word()} {word()} {word()}\n" for _ in range(lines))

# Packages of ten modules each: a main that requires the others, and one of the next package.
for package in range(100):
    base = f"{root}/node/node_modules/p{package:02}"
    put(f"{base}/package.json", f'{{"name":"p{package:02}","version":"1.0.0","main":"lib/index.js"}}\n')
    parts = "".join(f"sum += require('./part{part}');\n" for part in range(9))
    after = f"sum += require('p{package + 1:02}');\n" if package % 5 < 4 else ""
    put(f"{base}/lib/index.js", f"let sum = 0;\n{parts}{after}module.exports = sum;\n{body(rng.randrange(200))}")
    for part in range(9):
        text = f"module.exports = {package * 9 + part};\n{body(rng.randrange(10, 400))}"
        put(f"{base}/lib/part{part}.js", text)
mains = "".join(f"sum += require('p{package:02}');\n" for package in range(0, 100, 5))
put(f"{root}/node/main.js", f"let sum = 0;\n{mains}console.log(sum);\n")

for at in range(5000):
    put(f"{root}/repo/d{at % 50:02}/e{at % 500 // 50}/f{at:04}.c", body(rng.randrange(3, 60)))

keys = [f"{rng.getrandbits(64):016x}" for _ in range(50_000)]
put(f"{root}/rows.csv", "".join(f"{key}\n" for key in keys))
query = "select key, sum(length(body)) from rows where key = '%s';\n"
put(f"{root}/queries", "".join(query % key for key in rng.sample(keys, 200)))

# Classes and what they carry, in turns, so that classes lie all over the archive.
for at in range(1500):
    methods = "".join(f"  public static int m{i}(int a) {{ return a * {rng.getrandbits(30)} + {i}; }}\n" for i in range(30))
    put(f"{root}/java/source/p/C{at:04}.java", f"package p;\npublic class C{at:04} {{\n{methods}}}\n")
put(f"{root}/java/source/Main.java", """public class Main {
  public static void main(String[] words) throws Exception {
    long sum = 0;
    for (int i = 0; i < 400; i++) {
      Class<?> it = Class.forName(String.format("p.C%04d", i * 577 % 1500));
      sum += (Integer) it.getDeclaredMethod("m7", int.class).invoke(null, i);
    }
    for (int i = 0; i < 40; i++)
      sum += Main.class.getResourceAsStream(String.format("r/%04d", i * 29 % 1500)).readAllBytes()[0];
    System.out.println(sum);
  }
}
""")
for at in range(1500):
    path = f"{root}/java/classes/r/{at:04}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(rng.randbytes(26_000))
MAKE

has node || rm -rf "$folder/node"
if has git; then
    # The image has other inodes and times of its own: contents alone decide.
    (cd "$folder/repo" && git init -q && git config core.checkStat minimal && git config core.trustctime false &&
        git add . && git -c user.name=bed -c user.email=bed@localhost commit -qm all)
else
    rm -rf "$folder/repo"
fi
if has sqlite3; then
    sqlite3 "$folder/large.db" "create table keys(key text)" ".mode csv" \
        ".import $folder/rows.csv keys" "create table rows(key text, body blob);
        insert into rows select key, randomblob(4000) from keys; drop table keys;
        create index by_key on rows(key); vacuum;"
fi
rm -f "$folder/rows.csv"
if has javac && has jar; then
    (cd "$folder/java" && javac -d classes source/Main.java source/p/*.java && cd classes &&
        { echo Main.class; for at in $(seq -f %04g 0 1499); do printf 'p/C%s.class\nr/%s\n' "$at" "$at"; done; } >../order &&
        jar -c -f "$folder/app.jar" -e Main @../order)
fi
rm -rf "$folder/java"
if has perl; then
    mkdir "$folder/perl"
    perl -e 'print map { "$_\n" } reverse grep { m{^/usr/(lib|share)/} && -d } @INC' |
        while read -r place; do cp -rL "$place/." "$folder/perl" 2>/dev/null || true; done
fi
if has ruby; then
    mkdir "$folder/ruby"
    ruby --disable-gems -e 'puts $:.reverse.grep(%r{/ruby/\d}).select { |it| File.directory?(it) }' |
        while read -r place; do cp -rL "$place/." "$folder/ruby" 2>/dev/null || true; done
fi
touch "$folder/.made-1"
