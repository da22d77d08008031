#!/bin/bash
# record.sh OUT SEED FORERUN - records programs on a tree of this seed with strace, and writes each as OUT/NAME.jsonl.zst.
# Needs strace, rsync, git, make, gcc, python3, file; writes below /tmp/forerun-walks alone.
set -eu
export LC_ALL=C
out=$(realpath "$1"); seed=$2; forerun=$(realpath "$3"); here=$(dirname "$(realpath "$0")")
work=/tmp/forerun-walks
rm -rf "$work"; mkdir -p "$work/out"; cd "$work"
python3 "$here/tree.py" "$work/tree" "$seed"
git -C tree/repo init -q
git -C tree/repo add -A
git -C tree/repo -c user.name=a -c user.email=a@b commit -qm tree
cp -r tree/repo "$work/other"
cat > "$work/walk.py" <<'PY'
import os
for path, _, files in os.walk("tree/repo"):
    for name in files:
        with open(os.path.join(path, name), "rb") as file:
            file.read()
PY
cat > "$work/random.py" <<'PY'
import os, random
paths = sorted(os.path.join(d, n) for d, _, f in os.walk("tree/repo") for n in f)
random.Random(1).shuffle(paths)
for path in paths[:200]:
    with open(path, "rb") as file:
        file.read()
PY
cat > "$work/packages.py" <<'PY'
import importlib, os, random, sys
sys.path.insert(0, "tree/site")
names = sorted(os.listdir("tree/site"))
random.Random(2).shuffle(names)
for name in names:
    importlib.import_module(name)
PY
record() { # NAME COMMAND: the tree goes into the trace as it was before the command.
  local name=$1; shift
  strace -f -ttt -T -y -s 0 -o "$work/$name.strace" sh -c "$*" > "$work/out/$name" 2>&1 || true
  rm -f tree/build/*.o tree/build/*.a
  "$forerun" trace convert "$work/$name.strace" "$out/$name.jsonl" --to accesses --tree "$work/tree" --program "$*"
  zstd -q -19 --rm -f "$out/$name.jsonl"
}
record tar          "tar cf - tree/repo | cat > /dev/null"
record tar-flat     "tar cf - tree/flat tree/mixed | cat > /dev/null"
record grep         "grep -rc kernel tree/repo"
record grep-include "grep -rc --include='*.h' kernel tree/repo"
record cp           "cp -r tree/repo copy"
record rsync        "rsync -a tree/repo/ synced/"
record find         "find tree/repo -name 'cache*'"
record find-size    "find tree/repo -size +8k"
record du           "du -s tree/repo"
record git-status   "git -C tree/repo status --short"
record git-grep     "git -C tree/repo grep -c kernel"
record make         "make -s -j4 -C tree/build"
record oswalk       "python3 walk.py"
record ls           "ls -lR tree/repo"
record sha256sum    "cd tree/flat; sha256sum *"
record sha256sum-natural "cd tree/flat; sha256sum \$(ls -v)"
record xargs        "find tree/repo -type f -name '*.c' -print0 | xargs -0 -n 8 -P 4 wc -l"
record file         "file tree/mixed/* tree/flat/*"
record import       "python3 -B packages.py"
record random       "python3 random.py"
record diff         "diff -rq tree/repo other"
record head         "head -c 100 -q tree/flat/*"
