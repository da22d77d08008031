/* slowdisk - an honest slow disk, served through FUSE.
 *
 * One backing file (put it on tmpfs: drop_caches must not slow the model) is
 * served under three names:
 *     MNT/disk     direct_io: no page cache.  For losetup --direct-io=on, or
 *                  for a user-space cache that reads the device itself.
 *     MNT/cached   same bytes through the kernel's page cache and readahead.
 *     MNT/ctl      read: counters since the last reset.
 *                  write: "reset", "mark TEXT", "log PATH|off", or "KEY=VAL ...".
 * Every request to disk or cached is given a completion time by a model of the
 * device and is answered at that absolute time (CLOCK_MONOTONIC), so the time
 * spent in this program never adds up.  Both names share the one device.
 *
 * Models (model=NAME loads the preset, later KEY=VAL change single values):
 *   t7k250  Hitachi Deskstar T7K250, 7200 rpm: seek 1.1/8.5/15.1 ms, 52 MB/s, 160 GB,
 *           track buffer off, commands one by one (no NCQ).
 *           cache=16 turns its 16 x 512 KB buffer on.
 *   hdd     newer 7200 rpm disk, 200 MB/s, buffer and NCQ on
 *   cloud   1-3 ms, 125 MB/s, 3000 IO/s (of up to 256 KB each), parallel
 *   object  30-60 ms to first byte, 90 MB/s per connection, 32 connections
 *   ssd     80 us, 500 MB/s, 32 deep
 *   null    no delay
 *
 * The disk model: one actuator, one request at a time (fifo, or sptf=1: the
 * shortest positioning time of at most 32).  A byte's angle is its position
 * divided by the media rate, modulo one turn: perfect track skew, so a stream
 * that keeps up pays no rotation and one that is late by e pays a turn less e.
 * Seek time over distance d (share of the full stroke): min + b sqrt(d) + c d,
 * with b and c set so that its mean over random pairs is avg and t(1) is max.
 * The track buffer: LRU segments; the disk reads on after a request until the
 * segment is full or the next miss comes.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAXWRITE (1 << 20)
#define BUFSZ (MAXWRITE + 8192)
#define MAXQ 4096
#define MAXSEG 64
#define SEC 1000000000LL

enum { INO_ROOT = 1, INO_DISK, INO_CACHED, INO_CTL };
static const char *names[] = { 0, 0, "disk", "cached", "ctl" };

/* ---- parameters ---------------------------------------------------- */
static struct par {
	int kind;                     /* 0 null, 1 disk, 2 cloud, 3 object */
	double rate, link;            /* bytes per second: media, bus */
	double turn, smin, savg, smax, ovh;     /* seconds */
	double cap;                   /* bytes across the full stroke */
	int cache; double segsize;    /* track buffer */
	int sptf, ncq;                /* shortest first; overhead hidden while queued */
	double lmin, lmax, iops, iosize; int par;  /* cloud, object, ssd */
} P;
static int max_pages = 256, max_bg = 128, max_ra = 64 << 20, nworkers = 2;
static double spin_us = 60;

static uint8_t *data; static int64_t size;
static int devfd; static FILE *logf_; static int64_t t0;

static int64_t now_ns(void)
{
	struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SEC + t.tv_nsec;
}

static void preset(const char *m)
{
	struct par d = { .kind = 1, .rate = 52e6, .link = 250e6, .turn = 60.0 / 7200,
		.smin = 1.1e-3, .savg = 8.5e-3, .smax = 15.1e-3, .ovh = 100e-6, .cap = 160e9,
		.cache = 0, .segsize = 512 << 10, .par = 32, .iosize = 256 << 10 };
	if (!strcmp(m, "hdd")) d.rate = 200e6, d.link = 550e6, d.cap = 4e12, d.ncq = d.sptf = 1, d.cache = 32, d.segsize = 2 << 20;
	else if (!strcmp(m, "cloud")) d.kind = 2, d.lmin = 1e-3, d.lmax = 3e-3, d.rate = 125e6, d.iops = 3000, d.par = 64;
	else if (!strcmp(m, "object")) d.kind = 3, d.lmin = 30e-3, d.lmax = 60e-3, d.rate = 90e6, d.par = 32;
	else if (!strcmp(m, "ssd")) d.kind = 2, d.lmin = d.lmax = 80e-6, d.rate = 500e6, d.iops = 1e5, d.par = 32;
	else if (!strcmp(m, "null")) d.kind = 0;
	P = d;
}

/* ---- requests ------------------------------------------------------- */
struct rq {
	uint64_t unique; int64_t off; uint32_t len; int write, ino;
	uint32_t pid; int depth;
	int64_t arrive, start, done; double pos;
};
static struct rq pend[MAXQ], heap[MAXQ];
static int npend, nheap, busy;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv;

static struct stats { uint64_t n, bytes, wr, seeks, hist[16]; double busy, pos, lat, late, latemax; int depth; int64_t first, last; } S;

/* ---- disk model ------------------------------------------------------ */
static double t_free, head, t_media; static int act = -1; static double limit_;
static struct seg { double lo, hi; uint64_t use; } seg[MAXSEG]; static uint64_t tick;

static double seek_time(double from, double to)
{
	double track = P.rate * P.turn;
	if (floor(from / track) == floor(to / track)) return 0;
	double d = fabs(to - from) / P.cap, span = P.smax - P.smin;
	double b = (P.savg - P.smin - span / 3) / 0.2;
	return P.smin + b * sqrt(d) + (span - b) * d;
}
static double rot_wait(double t, double off)
{
	double w = fmod(off / P.rate - t, P.turn);
	if (w < 0) w += P.turn;
	return w > P.turn - 1e-9 ? 0 : w;
}
static void read_on(double t)        /* the disk's own readahead up to time t */
{
	if (act < 0) return;
	struct seg *s = &seg[act];
	double hi = s->hi + P.rate * (t - t_media);
	if (hi > limit_) hi = limit_;
	if (hi > s->hi) { t_media += (hi - s->hi) / P.rate; s->hi = hi; }
	if (s->hi - s->lo > P.segsize) s->lo = s->hi - P.segsize;
	head = s->hi;
}
static double position(double t, double off)
{
	double s = seek_time(head, off);
	return s + rot_wait(t + s, off);
}
static double disk_service(double t, double arrive, double off, double len, int write, double *pos)
{
	double end = off + len, done;
	if (P.ncq) { if (t < arrive + P.ovh) t = arrive + P.ovh; } else t += P.ovh;
	*pos = 0;
	if (P.cache) read_on(t);
	if (P.cache && !write) for (int i = 0; i < P.cache; i++) {
		struct seg *s = &seg[i];
		if (!s->use || off < s->lo || off > s->hi) continue;
		if (end <= s->hi) {                       /* all of it is there */
			s->use = ++tick; done = t + len / P.link;
			if (i == act && limit_ < end + P.segsize / 2) {
				if (limit_ <= s->hi) t_media = t + rot_wait(t, s->hi);  /* start it again */
				limit_ = end + P.segsize / 2;
			}
			return t_free = done;
		}
		if (i == act) {                           /* the head is just ahead */
			double w = s->hi < limit_ ? 0 : rot_wait(t, s->hi);
			*pos = w; done = t + w + (end - s->hi) / P.rate;
			s->hi = head = end; t_media = done; limit_ = end + P.segsize / 2; s->use = ++tick;
			return t_free = done;
		}
		off = s->hi; s->use = ++tick; break;       /* an old segment holds the start */
	}
	*pos = position(t, off); S.seeks++;
	done = t + *pos + (end - off) / P.rate;
	head = end; t_media = done; act = -1;
	if (P.cache && !write) {
		int v = 0;
		for (int i = 0; i < P.cache; i++) if (seg[i].use < seg[v].use) v = i;
		act = v; seg[v] = (struct seg){ off, end, ++tick }; limit_ = end + P.segsize / 2;
	}
	return t_free = done;
}

/* ---- parallel models ------------------------------------------------- */
static double bw_free, io_free, conn[1024];
static double uniform(void)
{
	static uint64_t x = 88172645463325252ull;
	x ^= x << 13; x ^= x >> 7; x ^= x << 17;
	return (x >> 11) * 0x1p-53;
}
static double service(struct rq *r)
{
	double t = (r->start - t0) / 1e9, lat = P.lmin + (P.lmax - P.lmin) * uniform();
	if (P.kind == 1) {
		if (t < t_free) t = t_free;
		r->start = t0 + (int64_t)(t * 1e9);
		return disk_service(t, (r->arrive - t0) / 1e9, r->off, r->len, r->write, &r->pos);
	}
	if (P.kind == 0) return t;
	int c = 0;
	for (int i = 1; i < P.par; i++) if (conn[i] < conn[c]) c = i;
	if (t < conn[c]) t = conn[c];
	r->pos = lat;
	if (P.kind == 3) return conn[c] = t + lat + r->len / P.rate;
	if (t < io_free) t = io_free;
	io_free = t + ceil(r->len / P.iosize) / P.iops;
	if (bw_free < t) bw_free = t;
	bw_free += r->len / P.rate;
	return conn[c] = bw_free + lat;
}

/* ---- queue ------------------------------------------------------------ */
static void push(struct rq r)
{
	int i = nheap++;
	while (i && heap[(i - 1) / 2].done > r.done) { heap[i] = heap[(i - 1) / 2]; i = (i - 1) / 2; }
	heap[i] = r;
}
static struct rq pop(void)
{
	struct rq top = heap[0], r = heap[--nheap]; int i = 0;
	for (;;) {
		int c = 2 * i + 1;
		if (c >= nheap) break;
		if (c + 1 < nheap && heap[c + 1].done < heap[c].done) c++;
		if (heap[c].done >= r.done) break;
		heap[i] = heap[c]; i = c;
	}
	heap[i] = r;
	return top;
}
static void dispatch(int64_t earliest)      /* mu held */
{
	while (npend && !(P.kind == 1 && busy)) {
		int k = 0;
		if (P.kind == 1 && P.sptf) {
			double best = 1e9;
			for (int i = 0; i < npend && i < 32; i++) {
				double p = position(t_free + (P.ncq ? 0 : P.ovh), pend[i].off);
				for (int j = 0; j < P.cache; j++)    /* in the buffer: at once */
					if (seg[j].use && pend[i].off >= seg[j].lo && pend[i].off <= seg[j].hi) p = 0;
				if (p < best) best = p, k = i;
			}
		}
		struct rq r = pend[k];
		memmove(pend + k, pend + k + 1, (--npend - k) * sizeof r);
		r.start = r.arrive > earliest ? r.arrive : earliest;
		if (P.kind != 1) r.start = r.arrive;
		double d = service(&r);
		r.done = t0 + (int64_t)(d * 1e9);
		S.n++; S.bytes += r.len; S.wr += r.write;
		S.busy += (r.done - r.start) / 1e9; S.pos += r.pos; S.lat += (r.done - r.arrive) / 1e9;
		if (!S.first) S.first = r.arrive;
		if (r.done > S.last) S.last = r.done;
		int b = 0; while (b < 15 && (4096u << b) < r.len) b++;
		S.hist[b]++;
		if (logf_) fprintf(logf_, "%.1f %.1f %.1f %c %ld %u %u %d %.3f\n", (r.arrive - t0) / 1e3,
			(r.start - t0) / 1e3, (r.done - t0) / 1e3, r.write ? 'W' : 'R', (long)r.off, r.len, r.pid, r.depth, r.pos * 1e3);
		busy++; push(r);
	}
}
static int reply(uint64_t unique, int err, void *p, size_t n)
{
	struct fuse_out_header h = { .len = sizeof h + n, .error = -err, .unique = unique };
	struct iovec v[2] = { { &h, sizeof h }, { p, n } };
	return writev(devfd, v, n ? 2 : 1);
}
static double copy_nspb = 0.15;             /* ns per byte of a reply, measured */

static void *worker(void *arg)
{
	(void)arg; prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&mu);
	for (;;) {
		if (!nheap) { pthread_cond_wait(&cv, &mu); continue; }
		int64_t lead = (int64_t)(copy_nspb * heap[0].len), due = heap[0].done - lead, t = now_ns();
		if (P.kind && due - t > spin_us * 1e3) {
			int64_t w = due - (int64_t)(spin_us * 1e3);
			struct timespec ts = { w / SEC, w % SEC };
			pthread_cond_timedwait(&cv, &mu, &ts);  /* a nearer one may come */
			continue;
		}
		struct rq r = pop();
		busy--; dispatch(r.done);
		if (nheap || npend) pthread_cond_signal(&cv);
		pthread_mutex_unlock(&mu);
		while (now_ns() < due) __builtin_ia32_pause();
		int64_t c0 = now_ns();
		if (r.write) { struct fuse_write_out o = { .size = r.len }; reply(r.unique, 0, &o, sizeof o); }
		else reply(r.unique, 0, data + r.off, r.len);
		int64_t c1 = now_ns();
		pthread_mutex_lock(&mu);
		if (r.len >= 65536) copy_nspb += 0.05 * ((double)(c1 - c0) / r.len - copy_nspb);
		double late = (c1 - r.done) / 1e3;
		S.late += late; if (late > S.latemax) S.latemax = late;
	}
	return 0;
}
static void submit(struct rq r)
{
	r.arrive = now_ns();
	pthread_mutex_lock(&mu);
	if (npend + nheap >= MAXQ - 1) { pthread_mutex_unlock(&mu); reply(r.unique, EAGAIN, 0, 0); return; }
	r.depth = npend + nheap + 1; if (r.depth > S.depth) S.depth = r.depth;
	pend[npend++] = r;
	int64_t old = nheap ? heap[0].done : INT64_MAX;
	dispatch(0);
	if (nheap && heap[0].done < old) pthread_cond_broadcast(&cv);
	pthread_mutex_unlock(&mu);
}

/* ---- control ------------------------------------------------------------ */
static void settings(char *s)
{
	struct { const char *k; double *d; int *i; } t[] = {
		{ "rate", &P.rate, 0 }, { "link", &P.link, 0 }, { "turn", &P.turn, 0 }, { "smin", &P.smin, 0 },
		{ "savg", &P.savg, 0 }, { "smax", &P.smax, 0 }, { "ovh", &P.ovh, 0 }, { "cap", &P.cap, 0 },
		{ "cache", 0, &P.cache }, { "segsize", &P.segsize, 0 }, { "sptf", 0, &P.sptf }, { "ncq", 0, &P.ncq }, { "lmin", &P.lmin, 0 },
		{ "lmax", &P.lmax, 0 }, { "iops", &P.iops, 0 }, { "par", 0, &P.par }, { "spin_us", &spin_us, 0 },
		{ "max_pages", 0, &max_pages }, { "max_bg", 0, &max_bg }, { "max_ra", 0, &max_ra }, { "workers", 0, &nworkers } };
	for (char *sv, *w = strtok_r(s, " ,\n", &sv); w; w = strtok_r(0, " ,\n", &sv)) {
		char *v = strchr(w, '=');
		if (!strcmp(w, "reset")) { memset(&S, 0, sizeof S); continue; }
		if (!strcmp(w, "mark")) { if (logf_) fprintf(logf_, "# %s\n", sv ? sv : ""); return; }
		if (!strcmp(w, "log")) {
			char *p = strtok_r(0, " ,\n", &sv);
			if (logf_) fclose(logf_);
			logf_ = p && strcmp(p, "off") ? fopen(p, "w") : 0; continue;
		}
		if (!v) continue;
		*v++ = 0;
		if (!strcmp(w, "model")) { preset(v); t_free = head = t_media = bw_free = io_free = 0; act = -1;
			memset(seg, 0, sizeof seg); memset(conn, 0, sizeof conn); continue; }
		for (unsigned i = 0; i < sizeof t / sizeof *t; i++) if (!strcmp(w, t[i].k)) {
			if (t[i].d) *t[i].d = atof(v); else *t[i].i = atoi(v);
		}
		if (P.cache > MAXSEG) P.cache = MAXSEG;
		if (P.par > 1024) P.par = 1024;
	}
}
static int show(char *b, int n)
{
	double k = S.n ? S.n : 1;
	int l = snprintf(b, n, "n %lu\nbytes %lu\nwrites %lu\nmean %.0f\nbusy_s %.6f\npos_s %.6f\nseeks %lu\nlatency_ms %.3f\n"
		"maxdepth %d\nspan_s %.6f\nlate_us %.1f\nlate_max_us %.1f\nhist", S.n, S.bytes, S.wr, S.bytes / k, S.busy, S.pos, S.seeks,
		S.lat / k * 1e3, S.depth, (S.last - S.first) / 1e9, S.late / k, S.latemax);
	for (int i = 0; i < 12; i++) l += snprintf(b + l, n - l, " %dK:%lu", 4 << i, S.hist[i]);
	if (logf_) fflush(logf_);
	return l + snprintf(b + l, n - l, "\n");
}

/* ---- FUSE ------------------------------------------------------------ */
static void attr(struct fuse_attr *a, int ino)
{
	memset(a, 0, sizeof *a);
	a->ino = ino; a->nlink = 1; a->blksize = 4096;
	if (ino == INO_ROOT) { a->mode = S_IFDIR | 0755; return; }
	a->mode = S_IFREG | 0644; a->size = ino == INO_CTL ? 0 : size; a->blocks = a->size / 512;
}
static void *reader(void *arg)
{
	(void)arg; uint8_t *buf = aligned_alloc(4096, BUFSZ);
	for (;;) {
		ssize_t n = read(devfd, buf, BUFSZ);
		if (n < 0) { if (errno == EINTR || errno == EAGAIN || errno == ENOENT) continue; exit(0); }
		struct fuse_in_header *h = (void *)buf; void *in = h + 1; int ino = h->nodeid;
		switch (h->opcode) {
		case FUSE_INIT: {
			struct fuse_init_in *i = in;
			struct fuse_init_out o = { .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
				.max_readahead = max_ra, .max_background = max_bg, .congestion_threshold = max_bg,
				.max_write = MAXWRITE, .time_gran = 1, .max_pages = max_pages };
			o.flags = i->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS);
			fprintf(stderr, "slowdisk: kernel %u.%u flags %x max_readahead %u\n", i->major, i->minor, i->flags, i->max_readahead);
			reply(h->unique, 0, &o, sizeof o); break; }
		case FUSE_LOOKUP: {
			struct fuse_entry_out e = { .attr_valid = 3600, .entry_valid = 3600 };
			for (int i = INO_DISK; i <= INO_CTL; i++) if (!strcmp(in, names[i])) e.nodeid = i;
			if (!e.nodeid) { reply(h->unique, ENOENT, 0, 0); break; }
			attr(&e.attr, e.nodeid); reply(h->unique, 0, &e, sizeof e); break; }
		case FUSE_GETATTR: case FUSE_SETATTR: {
			struct fuse_attr_out a = { .attr_valid = 3600 };
			attr(&a.attr, ino); reply(h->unique, 0, &a, sizeof a); break; }
		case FUSE_OPEN: case FUSE_OPENDIR: {
			struct fuse_open_out o = { .open_flags = ino == INO_CACHED ? FOPEN_KEEP_CACHE : ino == INO_ROOT ? 0 : FOPEN_DIRECT_IO };
			reply(h->unique, 0, &o, sizeof o); break; }
		case FUSE_READDIR: {
			struct fuse_read_in *r = in; char b[512]; size_t l = 0;
			for (int i = r->offset + INO_DISK; i <= INO_CTL; i++) {
				struct fuse_dirent *d = (void *)(b + l);
				d->ino = i; d->off = i - INO_DISK + 1; d->namelen = strlen(names[i]); d->type = S_IFREG >> 12;
				memcpy(d->name, names[i], d->namelen); l += FUSE_DIRENT_SIZE(d);
			}
			reply(h->unique, 0, b, l); break; }
		case FUSE_READ: {
			struct fuse_read_in *r = in;
			if (ino == INO_CTL) {
				char b[2048]; pthread_mutex_lock(&mu); int l = show(b, sizeof b); pthread_mutex_unlock(&mu);
				reply(h->unique, 0, b, r->offset ? 0 : l); break;
			}
			if ((int64_t)r->offset >= size) { reply(h->unique, 0, 0, 0); break; }
			uint32_t len = r->size;
			if ((int64_t)(r->offset + len) > size) len = size - r->offset;
			submit((struct rq){ .unique = h->unique, .off = r->offset, .len = len, .ino = ino, .pid = h->pid }); break; }
		case FUSE_WRITE: {
			struct fuse_write_in *w = in; char *p = (char *)(w + 1);
			if (ino == INO_CTL) {
				char b[1024]; uint32_t l = w->size < 1023 ? w->size : 1023; memcpy(b, p, l); b[l] = 0;
				pthread_mutex_lock(&mu); settings(b); pthread_mutex_unlock(&mu);
				struct fuse_write_out o = { .size = w->size }; reply(h->unique, 0, &o, sizeof o); break;
			}
			if ((int64_t)(w->offset + w->size) > size) { reply(h->unique, ENOSPC, 0, 0); break; }
			memcpy(data + w->offset, p, w->size);
			submit((struct rq){ .unique = h->unique, .off = w->offset, .len = w->size, .ino = ino, .pid = h->pid, .write = 1 }); break; }
		case FUSE_STATFS: { struct fuse_statfs_out o = { .st = { .bsize = 4096, .namelen = 255 } }; reply(h->unique, 0, &o, sizeof o); break; }
		case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break;
		case FUSE_FLUSH: case FUSE_RELEASE: case FUSE_RELEASEDIR: case FUSE_FSYNC: case FUSE_ACCESS: case FUSE_DESTROY:
			reply(h->unique, 0, 0, 0); break;
		default: reply(h->unique, ENOSYS, 0, 0);
		}
	}
}

int main(int argc, char **argv)
{
	int c; char *opts = 0, *model = "t7k250", *log = 0;
	while ((c = getopt(argc, argv, "m:o:l:")) > 0) {
		if (c == 'm') model = optarg; else if (c == 'o') opts = strdup(optarg); else if (c == 'l') log = optarg;
		else { fprintf(stderr, "usage: slowdisk [-m MODEL] [-o KEY=VAL,...] [-l LOG] BACKING MOUNTPOINT\n"); return 2; }
	}
	if (argc - optind != 2) { fprintf(stderr, "usage: slowdisk [-m MODEL] [-o KEY=VAL,...] [-l LOG] BACKING MOUNTPOINT\n"); return 2; }
	char *mnt = argv[optind + 1];
	int fd = open(argv[optind], O_RDWR); struct stat st;
	if (fd < 0 || fstat(fd, &st)) { perror(argv[optind]); return 1; }
	size = st.st_size;
	data = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (data == MAP_FAILED) { perror("mmap"); return 1; }
	preset(model); if (opts) settings(opts);
	if (log) logf_ = fopen(log, "w");
	devfd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char o[128]; snprintf(o, sizeof o, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", devfd);
	if (devfd < 0 || mount("slowdisk", mnt, "fuse.slowdisk", MS_NOSUID | MS_NODEV, o)) { perror("mount"); return 1; }
	t0 = now_ns();
	pthread_condattr_t ca; pthread_condattr_init(&ca); pthread_condattr_setclock(&ca, CLOCK_MONOTONIC); pthread_cond_init(&cv, &ca);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);       /* a loop device may write through us */
	pthread_t t;
	for (int i = 0; i < nworkers; i++) pthread_create(&t, 0, worker, 0);
	pthread_create(&t, 0, reader, 0);
	pthread_join(t, 0);
	return 0;
}
