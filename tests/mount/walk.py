# SPDX-License-Identifier: MIT
"""usage: walk.py DIR MODEL [damaged]: what stat(2), readdir(3) and open(2) tell about a tree must agree. Prints a line
for every file, for comparing two mounts. damaged: files that cannot be read are allowed, if reading them is EIO and not short."""
import errno
import os
import stat
import sys

top, model = sys.argv[1:3]
may_fail = sys.argv[3:] == ["damaged"]
want = os.stat(model)
numbers = {}
bad = 0


def wrong(path, what):
    global bad
    bad += 1
    print("%s: %s" % (path, what), file=sys.stderr)


def look(path, inode):
    s = os.lstat(path)
    if inode is not None and s.st_ino != inode:
        wrong(path, "readdir says inode %d, stat %d" % (inode, s.st_ino))
    if s.st_ino in numbers:
        wrong(path, "has the inode of %s" % numbers[s.st_ino])
    numbers[s.st_ino] = path
    if s.st_mtime_ns != want.st_mtime_ns:
        wrong(path, "time %d, the model's is %d" % (s.st_mtime_ns, want.st_mtime_ns))
    if s.st_uid != want.st_uid or s.st_gid != want.st_gid:
        wrong(path, "owner %d:%d" % (s.st_uid, s.st_gid))
    print(os.path.relpath(path, top), s.st_ino, oct(s.st_mode), s.st_nlink, s.st_size)
    return s


def length(path):
    try:
        with open(path, "rb") as f:
            return len(f.read())
    except OSError as e:
        if not may_fail or e.errno != errno.EIO:
            wrong(path, e.strerror)
        return None


def walk(path, inode):
    s = look(path, inode)
    with os.scandir(path) as entries:
        children = list(entries)
    names = [c.name for c in children]
    if len(set(names)) != len(names):
        wrong(path, "a name is listed twice")
    dirs = 0
    for c in children:
        is_dir = c.is_dir(follow_symlinks=False)
        if is_dir:
            dirs += 1
            walk(c.path, c.inode())
            continue
        t = look(c.path, c.inode())
        if c.is_symlink() != stat.S_ISLNK(t.st_mode):
            wrong(c.path, "readdir and stat disagree on the type")
        if stat.S_ISLNK(t.st_mode):
            if len(os.readlink(c.path)) != t.st_size:
                wrong(c.path, "link of another length than stat says")
            if not os.path.exists(c.path):
                wrong(c.path, "leads to nothing: " + os.readlink(c.path))
        else:
            if t.st_nlink != 1:
                wrong(c.path, "%d links" % t.st_nlink)
            n = length(c.path)
            if n is not None and n != t.st_size:
                wrong(c.path, "%d bytes read, stat says %d" % (n, t.st_size))
            if t.st_blocks * 512 < t.st_size:
                wrong(c.path, "%d blocks for %d bytes" % (t.st_blocks, t.st_size))
    # what is not listed is not counted: find(1) believes in st_nlink - 2
    if s.st_nlink != dirs + 2:
        wrong(path, "%d links, %d directories inside" % (s.st_nlink, dirs))
    if "op.json" in names:
        for name in ("inputs", "outputs"):
            walk(os.path.join(path, name), None)


walk(top, None)
sys.exit(bad > 0)
