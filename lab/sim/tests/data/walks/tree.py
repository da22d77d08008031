#!/usr/bin/env python3
"""tree.py DIR SEED: makes the small trees that record.sh walks over; the same seed, the same tree."""
import os
import random
import sys

top, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
WORDS = [line.strip() for line in """
alpha beta cache device entry frame group handle index journal kernel limit marker number order page
queue range stream table unit value window yield zone block chunk depth event fetch ghost hit inode
""".split()]


def write(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = " ".join(chance.choice(WORDS) for _ in range(size // 6 + 1))
    with open(path, "w") as file:
        file.write(text[:size] + "\n")


def size():
    return int(min(400_000, chance.lognormvariate(8.2, 1.3)))


def names(count):
    made = set()
    while len(made) < count:
        made.add("_".join(chance.sample(WORDS, chance.choice([1, 2, 2, 3]))))
    return sorted(made, key=lambda _: chance.random())


def directory(path, depth):
    """A source folder: files of several kinds, and folders of the same shape."""
    for name in names(chance.choice([1, 2, 4, 8, 16, 24])):
        suffix = chance.choices([".c", ".h", ".py", ".md", ".o", ""], [40, 25, 12, 6, 12, 5])[0]
        write(f"{path}/{name}{suffix}", size())
    if depth > 0:
        for name in names(chance.choice([2, 3, 4])):
            directory(f"{path}/{name}", depth - 1)


directory(f"{top}/repo", 3)
for number in range(300):
    write(f"{top}/flat/shard-{number}.bin", size())
for number in range(40):
    write(f"{top}/mixed/{names(1)[0]}-{number}.dat", chance.choice([3_000, 60_000, 180_000, 700_000]))
for number in range(60):
    write(f"{top}/build/part_{number}.h", 1_500)
with open(f"{top}/build/Makefile", "w") as file:
    objects = " ".join(f"part_{number}.o" for number in range(60))
    file.write(f"all.a: {objects}\n\tar rc $@ $^\n%.o: %.c %.h\n\tgcc -c -o $@ $<\n")
for number in range(60):
    with open(f"{top}/build/part_{number}.c", "w") as file:
        file.write(f'#define P{number} 1\nint part_{number}(void) {{ return {number}; }}\n')
    with open(f"{top}/build/part_{number}.h", "w") as file:
        file.write(f"int part_{number}(void);\n")
for package in names(12):
    base = f"{top}/site/{package}"
    write(f"{base}/notes.txt", 2_000)
    modules = names(chance.choice([4, 8, 12]))
    for module in modules:
        os.makedirs(base, exist_ok=True)
        with open(f"{base}/m_{module}.py", "w") as file:
            file.write(f"VALUE = '{module}'\n" + f"# {'x' * 70}\n" * chance.randrange(100))
    with open(f"{base}/__init__.py", "w") as file:
        for module in chance.sample(modules, max(1, len(modules) // 2)):
            file.write(f"from . import m_{module}\n")
