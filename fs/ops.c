/* SPDX-License-Identifier: MIT */
#define FUSE_USE_VERSION 314
#include "fs/ops.h"
#include "fs/changes.h"
#include "fs/control.h"
#include "fs/lead.h"
#include "fs/log.h"
#include "fs/options.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

/* What the kernel caches stays right until mount_changed says otherwise, so: for ever (three years). */
#define TIMEOUT_CLEAN 1e8
/* A name that is absent may come to be by an edit of another file. */
#define TIMEOUT_ABSENT 1.0
#define REQUEST_MAX (1u << 20)
/* a read so small is answered sooner than another thread awakes */
#define QUICK_MAX (128u << 10)

/*
 * With room for so many bytes of names gnulib asks whether a file has an ACL. ls -l of coreutils 9.6 and later
 * does for every file, which takes more time than all the rest, until it hears that this file system has none. No list
 * of ours is as long, so whoever wants the names is not taken for it.
 */
#define ACL_QUESTION 152

struct mount {
	struct fuse_session *se;
	struct workspace *w;
	struct changes *changes;
	struct mount_options o;
	uint64_t total; /* bytes of the model's files */
	uint64_t files;
	_Atomic bool broken_mapping; /* said once */
	struct lead lead;
	bool no_opendir; /* the kernel can do without */
};

/* What fi->fh points to. */
struct open_file {
	struct handle *h;
	bool writer;
	_Atomic bool unjudged; /* written since the last flush */
};

/* One per thread, for replies that are put together here; grows to what was asked for. */
static _Thread_local struct {
	char *ptr;
	size_t cap;
} scratch;

static char *scratch_get(size_t size)
{
	if (size > scratch.cap) {
		free(scratch.ptr);
		scratch.cap = (size + 4095) & ~(size_t)4095;
		scratch.ptr = malloc(scratch.cap);
		if (!scratch.ptr)
			scratch.cap = 0;
	}
	return scratch.ptr;
}

static void scratch_release(void)
{
	free(scratch.ptr);
	scratch.ptr = NULL;
	scratch.cap = 0;
}

static struct mount *mount_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/*
 * For requests that name an inode. The kernel may still know a file by the number it had as a scratch file that
 * has become a file of the model since; at ESTALE it looks the name up again, at ENOENT it would give up.
 */
static int stale(int r)
{
	return r == -ENOENT ? -ESTALE : r;
}

/* Answers with an error; r is negative. One with a text is logged and kept for status.json. */
static void reply_failure(fuse_req_t req, uint64_t inode, int r, const struct error *e)
{
	struct mount *m = mount_of(req);

	if (e && e->code) {
		log_error("%s", e->text);
		workspace_report(m->w, inode, e);
	}
	fuse_reply_err(req, -r);
}

/* For what may have changed something: the answer comes after the kernel has forgotten what it knew. */
static void reply_result(fuse_req_t req, uint64_t inode, int r, const struct error *e)
{
	struct mount *m = mount_of(req);

	changes_settle(m->changes);
	if (r < 0)
		reply_failure(req, inode, r, e);
	else
		fuse_reply_err(req, 0);
	changes_end(m->changes);
}

/* With umask= the model file's mode does not count, as for any FUSE mount. */
static mode_t shown_mode(const struct mount *m, const struct attr *a)
{
	mode_t all;

	if (m->o.umask == OPTION_UNSET || a->entry.kind == ENTRY_LINK)
		return a->mode;
	all = S_ISDIR(a->mode) ? 0777 : 0666;
	if (!(a->mode & 0222))
		all &= (mode_t)~0222;
	return (a->mode & (mode_t)~07777) | (all & (mode_t)~m->o.umask);
}

static void fill_stat(const struct mount *m, const struct attr *a, struct stat *st)
{
	struct stat model;

	workspace_model_stat(m->w, &model);
	memset(st, 0, sizeof(*st));
	st->st_ino = a->entry.inode;
	st->st_mode = shown_mode(m, a);
	st->st_nlink = a->entry.links;
	st->st_uid = m->o.uid == OPTION_UNSET ? model.st_uid : m->o.uid;
	st->st_gid = m->o.gid == OPTION_UNSET ? model.st_gid : m->o.gid;
	st->st_size = (off_t)a->entry.size;
	st->st_blocks = (blkcnt_t)((a->entry.size + 511) / 512);
	st->st_mtim = a->mtime;
	st->st_atim = a->mtime;
	st->st_ctim = a->ctime;
}

static void fill_entry(const struct mount *m, const struct attr *a, struct fuse_entry_param *p)
{
	memset(p, 0, offsetof(struct fuse_entry_param, attr));
	p->ino = a->entry.inode;
	fill_stat(m, a, &p->attr);
	p->attr_timeout = TIMEOUT_CLEAN;
	p->entry_timeout = a->fleeting ? 0 : TIMEOUT_CLEAN;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	static const unsigned wanted = FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS |
		FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_EXPLICIT_INVAL_DATA |
		FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_IOCTL_DIR | FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ASYNC_READ;
	/* AUTO: only the first part of a long listing would bring attributes along. AUTO_INVAL: mount_changed
	 * is exact, a new mtime alone is no reason to read again. Splicing is slower than replying from the
	 * mapping. WRITEBACK_CACHE: writes must have arrived when a close is judged. */
	static const unsigned unwanted = FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_AUTO_INVAL_DATA |
		FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
		FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;

	((struct mount *)userdata)->no_opendir = conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
	conn->want |= conn->capable & wanted;
	conn->want &= ~unwanted;
	conn->max_write = REQUEST_MAX;
	conn->max_readahead = REQUEST_MAX;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	struct fuse_entry_param p;
	struct attr a;
	int r = workspace_lookup(m->w, parent, str_from(name), &a);

	if (r == -ENOENT) {
		memset(&p, 0, sizeof(p));
		p.entry_timeout = workspace_is_read_only(m->w) ? TIMEOUT_CLEAN : TIMEOUT_ABSENT;
		fuse_reply_entry(req, &p); /* inode 0: the kernel remembers that there is none */
		return;
	}
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fill_entry(m, &a, &p);
	fuse_reply_entry(req, &p);
}

static void reply_attr(fuse_req_t req, uint64_t inode)
{
	struct mount *m = mount_of(req);
	struct attr a;
	struct stat st;
	int r = stale(workspace_stat(m->w, inode, &a));

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fill_stat(m, &a, &st);
	fuse_reply_attr(req, &st, TIMEOUT_CLEAN);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	reply_attr(req, ino);
}

static struct open_file *file_of(const struct fuse_file_info *fi)
{
	return (struct open_file *)(uintptr_t)fi->fh;
}

static int set_size(struct mount *m, fuse_ino_t ino, uint64_t size, struct fuse_file_info *fi,
	struct error *e)
{
	struct open_file *f = fi ? file_of(fi) : NULL;

	if (!f)
		return workspace_truncate(m->w, ino, size, e);
	f->unjudged = true;
	return handle_truncate(f->h, size, e);
}

/* Owners are the model file's; only "changing" them to what they are succeeds. */
static bool owner_differs(const struct mount *m, const struct stat *new, int to_set)
{
	struct stat model;

	workspace_model_stat(m->w, &model);
	uid_t uid = m->o.uid == OPTION_UNSET ? model.st_uid : m->o.uid;
	gid_t gid = m->o.gid == OPTION_UNSET ? model.st_gid : m->o.gid;

	return (to_set & FUSE_SET_ATTR_UID && new->st_uid != uid) ||
	       (to_set & FUSE_SET_ATTR_GID && new->st_gid != gid);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *new, int to_set,
	struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct error e = {0};
	struct timespec now, *mtime = NULL;
	int r = 0;

	lead_pass(&m->lead);
	if (owner_differs(m, new, to_set))
		r = -EPERM;
	if (r == 0 && to_set & FUSE_SET_ATTR_SIZE)
		r = set_size(m, ino, (uint64_t)new->st_size, fi, &e);
	if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
		clock_gettime(CLOCK_REALTIME, &now);
		mtime = &now;
	} else if (to_set & FUSE_SET_ATTR_MTIME) {
		mtime = &new->st_mtim;
	}
	if (r == 0 && (mtime || to_set & FUSE_SET_ATTR_MODE))
		r = workspace_set_times(m->w, ino, mtime, to_set & FUSE_SET_ATTR_MODE ? new->st_mode : 0, &e);
	changes_settle(m->changes);
	if (r < 0)
		reply_failure(req, ino, stale(r), r == -ENOENT ? NULL : &e);
	else
		reply_attr(req, ino);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char *target = NULL;
	int r = workspace_readlink(mount_of(req)->w, ino, &target);

	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_readlink(req, target);
	free(target);
}

/* A kernel that is told ENOSYS never asks again, and caches directories by itself. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (mount_of(req)->no_opendir) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->cache_readdir = 1;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

struct listing {
	fuse_req_t req;
	struct mount *m;
	char *buf;
	size_t size, used;
	bool plus;
};

/* positions 0 and 1 are "." and ".." */
#define DOTS 2

static int listing_add(struct listing *l, const char *name, const struct fuse_entry_param *p, off_t next)
{
	size_t room = l->size - l->used, n;

	n = l->plus ? fuse_add_direntry_plus(l->req, l->buf + l->used, room, name, p, next)
		    : fuse_add_direntry(l->req, l->buf + l->used, room, name, &p->attr, next);
	if (n > room)
		return 1;
	l->used += n;
	return 0;
}

static int listing_emit(void *arg, struct str name, const struct attr *a, uint64_t next)
{
	struct listing *l = arg;
	struct fuse_entry_param p;
	char text[NAME_MAX + 1];

	if (name.len > NAME_MAX)
		return 0; /* cannot be, see views/names.h */
	memcpy(text, name.ptr, name.len);
	text[name.len] = 0;
	if (l->plus) {
		fill_entry(l->m, a, &p);
	} else {
		p.attr.st_ino = a->entry.inode;
		p.attr.st_mode = a->mode;
	}
	return listing_add(l, text, &p, (off_t)(next + DOTS));
}

static uint64_t parent_of(struct mount *m, uint64_t dir)
{
	struct tree *t;
	uint64_t parent;

	if (dir & WORKSPACE_SCRATCH)
		return dir;
	t = workspace_tree(m->w);
	parent = tree_parent(t, dir);
	tree_unref(t);
	return parent;
}

/* The kernel takes no attributes from these two. */
static int listing_dots(struct listing *l, uint64_t dir, off_t from)
{
	struct fuse_entry_param p = {.attr = {.st_mode = S_IFDIR | 0555}};
	int r = 0;

	if (from == 0) {
		p.attr.st_ino = dir;
		r = listing_add(l, ".", &p, 1);
	}
	if (r == 0) {
		p.attr.st_ino = parent_of(l->m, dir);
		r = listing_add(l, "..", &p, 2);
	}
	return r;
}

static void list(fuse_req_t req, fuse_ino_t dir, size_t size, off_t from, bool plus)
{
	struct listing l = {.req = req, .m = mount_of(req), .size = size, .plus = plus};
	int r = 0;

	l.buf = scratch_get(size);
	if (!l.buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (from < DOTS)
		r = listing_dots(&l, dir, from);
	if (r == 0)
		r = workspace_list(l.m->w, dir, from < DOTS ? 0 : (uint64_t)from - DOTS, plus, listing_emit, &l);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, l.buf, l.used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t dir, size_t size, off_t from, struct fuse_file_info *fi)
{
	(void)fi;
	list(req, dir, size, from, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t dir, size_t size, off_t from,
	struct fuse_file_info *fi)
{
	(void)fi;
	list(req, dir, size, from, true);
}

/* Wraps h for fi; takes h over, also when it fails. */
static int file_new(struct handle *h, struct fuse_file_info *fi)
{
	struct open_file *f = calloc(1, sizeof(*f));

	if (!f) {
		handle_release(h);
		return -ENOMEM;
	}
	f->h = h;
	f->writer = (fi->flags & O_ACCMODE) != O_RDONLY;
	/* O_TRUNC is a write that the first flush judges */
	f->unjudged = f->writer && fi->flags & O_TRUNC;
	fi->fh = (uint64_t)(uintptr_t)f;
	fi->keep_cache = handle_keep_cache(h);
	fi->noflush = !f->writer;
	return 0;
}

/* Also for an open whose answer nobody took. */
static void file_free(struct open_file *f)
{
	handle_release(f->h);
	free(f);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct error e = {0};
	struct handle *h = NULL;
	int r = workspace_open_file(mount_of(req)->w, ino, fi->flags, &h, &e);

	if (r == 0)
		r = file_new(h, fi);
	if (r < 0)
		reply_failure(req, ino, stale(r), r == -ENOENT ? NULL : &e);
	else if (fuse_reply_open(req, fi) < 0)
		file_free(file_of(fi)); /* interrupted: no release will come */
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct error e = {0};
	struct fuse_entry_param p;
	struct handle *h = NULL;
	struct attr a;
	int r;

	lead_pass(&m->lead);
	changes_begin(parent, name, 0, NULL);
	r = workspace_create(m->w, parent, str_from(name), mode, fi->flags, &a, &h, &e);

	if (r == 0)
		r = file_new(h, fi);
	if (r < 0) {
		reply_result(req, 0, r, &e);
		return;
	}
	fill_entry(m, &a, &p);
	changes_settle(m->changes);
	if (fuse_reply_create(req, &p, fi) < 0)
		file_free(file_of(fi));
	changes_end(m->changes);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct handle *h = file_of(fi)->h;
	uint64_t end = handle_size(h), at = (uint64_t)offset;
	struct mount *m = mount_of(req);
	struct error e = {0};
	const void *bytes;
	char *buf;
	ssize_t n;

	if (at >= end) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	if (size > end - at)
		size = (size_t)(end - at);
	if (size > QUICK_MAX)
		lead_pass(&m->lead);
	bytes = handle_peek(h, at, size);
	if (bytes) {
		fuse_reply_buf(req, bytes, size);
		handle_unpeek(h);
		return;
	}
	lead_pass(&m->lead); /* a codec may have much to do for few bytes */
	buf = scratch_get(size);
	n = buf ? handle_read(h, at, buf, size, &e) : -ENOMEM;
	if (n < 0)
		reply_failure(req, ino, (int)n, &e);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
	struct fuse_file_info *fi)
{
	struct open_file *f = file_of(fi);
	struct error e = {0};
	int r;

	lead_pass(&mount_of(req)->lead);
	f->unjudged = true;
	r = handle_write(f->h, (uint64_t)offset, buf, size, &e);
	if (workspace_acts(ino)) /* .wiamodel/commit, discard */
		changes_settle(mount_of(req)->changes);
	if (r < 0)
		reply_failure(req, ino, r, &e);
	else
		fuse_reply_write(req, size);
}

static int judge(struct open_file *f, struct error *e)
{
	f->unjudged = false;
	return f->writer ? handle_flush(f->h, e) : 0;
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct error e = {0};

	lead_pass(&mount_of(req)->lead);
	reply_result(req, ino, judge(file_of(fi), &e), &e);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_file *f = file_of(fi);
	struct error e = {0};

	if (f->unjudged)
		lead_pass(&mount_of(req)->lead);
	/* else at once: whatever the kernel asks next must find it done */
	/* pages of a mapping that outlived its close come as late as munmap(2), and nobody hears the verdict */
	if (f->unjudged && judge(f, &e) < 0) {
		log_error("%s", e.text);
		workspace_report(mount_of(req)->w, ino, &e);
	}
	file_free(f);
	fuse_reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct error e = {0};
	int r = 0;

	(void)datasync;
	lead_pass(&m->lead);
	if (fi && file_of(fi))
		r = judge(file_of(fi), &e);
	if (r == 0) /* a swap file's fsync is no reason to save the model */
		r = workspace_is_scratch(m->w, ino) ? workspace_sync_journal(m->w, &e) : workspace_commit(m->w, &e);
	reply_result(req, ino, r, &e);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	struct error e = {0};

	(void)datasync;
	(void)fi;
	lead_pass(&m->lead);
	reply_result(req, ino, workspace_commit(m->w, &e), &e);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct mount *m = mount_of(req);
	struct error e = {0};
	struct fuse_entry_param p;
	struct attr a;
	int r;

	lead_pass(&m->lead);
	r = workspace_mkdir(m->w, parent, str_from(name), mode, &a, &e);

	if (r < 0) {
		reply_failure(req, 0, r, &e);
		return;
	}
	fill_entry(m, &a, &p);
	fuse_reply_entry(req, &p);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct error e = {0};

	lead_pass(&mount_of(req)->lead);
	changes_begin(parent, name, 0, NULL);
	reply_result(req, 0, workspace_unlink(mount_of(req)->w, parent, str_from(name), &e), &e);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct error e = {0};

	lead_pass(&mount_of(req)->lead);
	changes_begin(parent, name, 0, NULL);
	reply_result(req, 0, workspace_rmdir(mount_of(req)->w, parent, str_from(name), &e), &e);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags)
{
	struct mount *m = mount_of(req);
	struct error e = {0};
	int r;

	lead_pass(&m->lead);
	changes_begin(parent, name, new_parent, new_name);
	r = workspace_rename(m->w, parent, str_from(name), new_parent, str_from(new_name), flags, &e);
	reply_result(req, 0, r, &e);
}

/* Editors that try these for locks and backups know EPERM as "not on this file system". */
static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target;
	(void)parent;
	(void)name;
	fuse_reply_err(req, EPERM);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino;
	(void)parent;
	(void)name;
	fuse_reply_err(req, EPERM);
}

static void reply_xattr(fuse_req_t req, const char *value, size_t len, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct error e = {0};
	char *value = NULL;
	size_t len = 0;
	int r;

	/* EOPNOTSUPP: ls -l asks for security.* and system.* once for a file system that answers so, and
	 * for every file otherwise */
	if (strncmp(name, "user.", 5) != 0) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (strncmp(name, "user.wiamodel.", 14) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	lead_pass(&mount_of(req)->lead); /* a checksum reads the whole tensor */
	r = workspace_xattr(mount_of(req)->w, ino, name, &value, &len, &e);
	if (r < 0)
		reply_failure(req, ino, r, r == -ENODATA ? NULL : &e);
	else
		reply_xattr(req, value, len, size);
	free(value);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char *names = NULL;
	size_t len = 0;
	int r;

	if (size == ACL_QUESTION) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	r = workspace_xattr_list(mount_of(req)->w, ino, &names, &len);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		reply_xattr(req, names, len, size);
	free(names);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = mount_of(req);
	struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_MAX};

	(void)ino;
	st.f_blocks = (m->total + 4095) / 4096;
	st.f_files = m->files;
	fuse_reply_statfs(req, &st);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	struct mount *m = mount_of(req);
	struct control c = {.keeper = (uint32_t)m->o.keeper, .server = (uint32_t)m->o.server};

	(void)arg;
	(void)fi;
	(void)flags;
	(void)in;
	(void)in_size;
	if (ino != TREE_ROOT || !control_is(cmd, out_size)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	lead_pass(&m->lead);
	control_answer(m->w, cmd, &c);
	changes_settle(m->changes);
	fuse_reply_ioctl(req, 0, &c, sizeof(c));
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.fsyncdir = op_fsyncdir,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.symlink = op_symlink,
	.link = op_link,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.statfs = op_statfs,
	.ioctl = op_ioctl,
};

static ssize_t device_read(int fd, void *buf, size_t len, void *userdata)
{
	return lead_read(&((struct mount *)userdata)->lead, fd, buf, len);
}

/*
 * A reply may come straight from the mapped model. If that file was truncated behind us the pages are gone
 * and writev gives EFAULT; the kernel has then ended the request with EIO already, as it should.
 */
static ssize_t device_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct mount *m = userdata;
	ssize_t n = writev(fd, iov, count);

	if (n >= 0 || errno != EFAULT)
		return n;
	if (!atomic_exchange(&m->broken_mapping, true))
		log_error("the model file was truncated while mounted: some reads fail");
	n = 0;
	for (int i = 0; i < count; i++)
		n += (ssize_t)iov[i].iov_len;
	return n;
}

__attribute__((format(printf, 2, 0))) static void fuse_message(enum fuse_log_level level, const char *format, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, ap);
	text[strcspn(text, "\n")] = 0;
	if (level <= FUSE_LOG_ERR)
		log_error("%s", text);
	else
		log_note("%s", text);
}

/* For the threads that tell of changes. ENOENT is no failure: the kernel had not cached it. */
static void deliver(void *arg, uint64_t inode, struct str name)
{
	struct mount *m = arg;

	if (name.len)
		fuse_lowlevel_notify_inval_entry(m->se, inode, name.ptr, name.len);
	/* of a directory, too: a name that was never looked up leaves the cached listing alone */
	fuse_lowlevel_notify_inval_inode(m->se, inode, 0, 0);
}

static void measure(struct mount *m)
{
	struct tree *t = workspace_tree(m->w);
	const struct model *model = tree_model(t);

	for (uint32_t i = 0; i < model->source_count; i++)
		m->total += source_size(model->sources[i]);
	m->files = (uint64_t)model->tensor_count + model->op_count;
	tree_unref(t);
}

struct mount *mount_new(int fd, struct workspace *w, const struct mount_options *o, struct error *e)
{
	static const struct fuse_custom_io io = {.read = device_read, .writev = device_writev};
	char *argv[] = {"wiamodel", "-d", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(o->debug ? 2 : 1, argv);
	struct mount *m = calloc(1, sizeof(*m));
	int r;

	if (!m) {
		error_set(e, ENOMEM, "out of memory");
		return NULL;
	}
	lead_init(&m->lead, o->lookout);
	m->w = w;
	m->o = *o;
	measure(m);
	if (!o->debug)
		fuse_set_log_func(fuse_message);
	m->se = fuse_session_new(&args, &ops, sizeof(ops), m);
	r = m->se ? fuse_session_custom_io(m->se, &io, fd) : -EINVAL;
	m->changes = r == 0 ? changes_new(deliver, m) : NULL;
	if (!m->changes) {
		r = r ? r : -ENOMEM;
		error_set(e, -r, "cannot start serving: %s", strerror(-r));
		mount_free(m);
		return NULL;
	}
	return m;
}

void mount_stop(struct mount *m)
{
	fuse_session_exit(m->se);
	lead_end(&m->lead);
}

void mount_serve(struct mount *m)
{
	struct fuse_buf buf = {0};

	while (!fuse_session_exited(m->se) && lead_take(&m->lead)) {
		int n = fuse_session_receive_buf(m->se, &buf);
		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(m->se, &buf);
	}
	mount_stop(m);
	lead_pass(&m->lead);
	free(buf.mem);
	scratch_release();
}

void mount_changed(struct mount *m, uint64_t inode, struct str name)
{
	if (m && (name.len > NAME_MAX || changes_add(m->changes, inode, name) < 0))
		log_error("out of memory: a changed file may show its old content");
}

void mount_free(struct mount *m)
{
	if (!m || !changes_free(m->changes))
		return;
	if (m->se)
		fuse_session_destroy(m->se);
	lead_release(&m->lead);
	free(m);
}
