//! Programs that change the tree while they walk over it: forerun is ahead of them, and looks at
//! what is gone, replaced or closed by then.

use std::fs;

use forerun_testkit::{installed, within};

use crate::device::Device;
use crate::reads::compare;

/// Begins each program: the folders in order, and `look`, which reads a file or tells the error.
const COMMON: &str = "
import os, shutil, stat, subprocess, sys, zlib
folders = sorted(n for n in os.listdir(b'.') if n[:1] == b'd')
def look(name):
    try:
        if not stat.S_ISREG(os.stat(name).st_mode): return print(name, 'other')
        with open(name, 'rb') as file: print(name, zlib.crc32(file.read()))
    except OSError as error: print(name, error.errno)
def names(folder): return [folder + b'/' + n for n in sorted(os.listdir(folder))]
def umount(at):
    while subprocess.run(['umount', at], stderr=subprocess.DEVNULL).returncode: pass
";

#[rustfmt::skip]
const CHANGES: &[(&str, &str, &str)] = &[ // what changes, what it is started by, the program
    ("files go behind it", "env", "
for folder in folders:
    for name in names(folder): look(name); os.unlink(name)
    os.rmdir(folder)
print(os.listdir('.'))"),
    ("files go before it", "unshare -p -f", "
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        if at % 3 == 0:
            for gone in all[at + 4:at + 6]: os.path.exists(gone) and os.unlink(gone)"),
    ("files come", "unshare -r", "
for folder in folders:
    for at, name in enumerate(names(folder)):
        look(name)
        with open(folder + b'/g%03d' % at, 'w') as file: file.write('new %d' % at)
    for name in names(folder): look(name)"),
    ("files are renamed", "env", "
for folder in folders:
    for name in names(folder): look(name); os.rename(name, name + b'.was')
    for name in names(folder): look(name)"),
    ("folders are renamed", "unshare -r -m", "
for at, folder in enumerate(folders):
    for nth, name in enumerate(names(folder)):
        look(name)
        if nth == 8: os.rename(folder, b'x%d' % at); os.mkdir(folder)
    for name in names(b'x%d' % at): look(name)"),
    ("folders change places", "env", "
for one, other in zip(folders[::2], folders[1::2]):
    for nth, name in enumerate(names(one)):
        look(name)
        if nth % 5 == 4:
            os.rename(one, b'z'); os.rename(other, one); os.rename(b'z', other)"),
    ("files are replaced", "env", "
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        for later in all[at + 5:at + 6]:
            with open(b'new', 'w') as file: file.write('replaced %d' % at)
            os.rename(b'new', later)"),
    ("files are cut and written", "env", "
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        if at + 3 < len(all):
            os.truncate(all[at + 3], at * 10)
            with open(all[at + 3], 'ab') as file: file.write(b'more')"),
    ("files become pipes", "env", "
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        if at % 2 == 0 and at + 5 < len(all): os.unlink(all[at + 5]); os.mkfifo(all[at + 5])
# A reader of the pipe would let this go on without an error.
for folder in folders:
    for name in names(folder):
        if stat.S_ISFIFO(os.stat(name).st_mode):
            try: os.open(name, os.O_WRONLY | os.O_NONBLOCK); print(name, 'is read')
            except OSError as error: print(name, error.errno)"),
    ("files become links", "env", "
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        if at + 5 < len(all):
            os.unlink(all[at + 5])
            os.symlink(['/etc/shadow', 'loop', '..', all[0]][at % 4], all[at + 5])"),
    ("folders become links", "env", "
for folder in folders:
    for at, name in enumerate(names(folder)):
        look(name)
        if at == 9:
            shutil.rmtree(folder)
            os.symlink(folders[0] if folder != folders[0] else '/etc', folder)"),
    ("permission goes, by another", "env", "
ready, go = os.pipe(), os.pipe()
os.chmod('.', 0o755)
if os.fork() == 0:
    os.setgid(65534); os.setuid(65534)
    for folder in folders:
        for at, name in enumerate(names(folder)):
            look(name)
            if at == 6: os.write(ready[1], b'x'); os.read(go[0], 1)
    sys.stdout.flush(); os._exit(0)
for folder in folders:
    os.read(ready[0], 1); os.chmod(folder, 0o700); os.write(go[1], b'x')
print(os.wait()[1])"),
    ("permission goes, by itself", "env", "
os.setgid(65534); os.setuid(65534)
for folder in folders:
    all = names(folder)
    for at, name in enumerate(all):
        look(name)
        if at == 6: os.chmod(all[10], 0)
        if at == 12: os.chmod(folder, 0)
        if at == 20: os.chmod(folder, 0o100)"),
    ("the working folder goes", "env", "
for folder in folders:
    os.chdir(folder)
    for at, name in enumerate(sorted(os.listdir(b'.'))):
        look(name)
        if at == 9: shutil.rmtree(b'../' + folder)
    os.chdir(b'..')"),
    ("links that loop", "unshare -r -m", "
for at, dirs, files in os.walk(b'.', followlinks=False):
    dirs.sort()
    for name in sorted(files) + sorted(dirs): look(at + b'/' + name)
for at in range(45): look(b'up/' * at + b'd00/f000.c') if at < 3 else look(b'loop/' * at)"),
    ("a mount comes and goes", "unshare -m", "
for folder in folders:
    for at, name in enumerate(names(folder)):
        look(name)
        if at == 7: subprocess.run(['mount', '--bind', folders[0], folder], check=True)
        if at == 15: umount(folder)"),
    ("mounts over mounts", "unshare -m", "
os.mkdir('m')
for folder in folders[:4]:
    subprocess.run(['mount', '--bind', folder, 'm'], check=True)
    for name in names(b'm'): look(name)
for folder in folders[:4]: umount('m')
print(os.listdir('m'))"),
    ("a mount goes with its files open", "unshare -m", "
os.mkdir('m')
subprocess.run(['mount', '--bind', folders[1], 'm'], check=True)
for at, name in enumerate(names(b'm')):
    look(name)
    if at == 9: subprocess.run(['umount', '-l', 'm'], check=True)"),
    ("the root", "unshare -r", "
os.chroot('.'); os.chdir('/')
for folder in folders:
    for name in names(b'/' + folder): look(name)
os.chroot(b'/' + folders[0]); os.chdir('/')
for name in sorted(os.listdir(b'/')): look(b'/' + name); look(b'../../' + name)"),
    ("many threads and processes", "env", "
import threading
def walk(folder):
    for name in names(folder):
        with open(name, 'rb') as file: sums[name] = zlib.crc32(file.read())
        os.unlink(name)
sums = {}
threads = [threading.Thread(target=walk, args=(folder,)) for folder in folders[:4]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(sums.items())); sys.stdout.flush()
for folder in folders[4:]:
    if os.fork() == 0:
        for name in names(folder):
            with open(name, 'rb') as file: sum = zlib.crc32(file.read())
            os.rename(name, b'%s-%d' % (name, sum))
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
for folder in folders[4:]: print(names(folder))"),
];

#[test]
fn programs_that_change_a_cold_tree_give_what_they_give_alone() {
    let test = "programs_that_change_a_cold_tree_give_what_they_give_alone";
    if !installed(test, "python3") {
        return;
    }
    let Some(device) = Device::new(test) else { return };
    within(move || {
        let (mut differences, mut requested) = (Vec::new(), 0);
        for (what, starter, program) in CHANGES {
            let at = device.path("program.py");
            fs::write(&at, format!("{COMMON}{program}\n")).expect("there is room");
            let command = format!("exec {starter} python3 -IS {}", at.display());
            requested += compare(&device, what, true, &command, &mut differences);
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(requested > 0, "nothing was fetched ahead: the table is a test of nothing");
    });
}
