/* Programs for tests of the shim: `cases NAME FILE` does what NAME says with FILE.
 *
 * Each checks what the program itself sees, and exits with 0 if that is as it would be without the
 * shim. What was read is in the test's expectations. Byte i of FILE is i / PAGE modulo 251.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MUST(condition) \
	do { if (!(condition)) { dprintf(2, "line %d: %s, errno %d\n", __LINE__, #condition, errno); \
		_exit(1); } } while (0)

static char page[PAGE];

/* Whether `got` bytes in `from` are those of page `number`. */
static int is_page(ssize_t got, const char *from, int number)
{
	for (int i = 0; i < PAGE; i++) if (from[i] != (char)(number % 251)) return 0;
	return got == PAGE;
}

static void read_pages(int fd, int first, int count)
{
	for (int i = first; i < first + count; i++) MUST(is_page(read(fd, page, PAGE), page, i));
}

static int must_open(const char *path)
{
	int fd = open(path, O_RDONLY);
	MUST(fd >= 0);
	return fd;
}

/* Each form of open and read, of which number i reads page 2 i. */
static void forms(const char *path)
{
	int fds[] = {
		open(path, O_RDONLY), open64(path, O_RDONLY),
		openat(AT_FDCWD, path, O_RDONLY), openat64(AT_FDCWD, path, O_RDONLY),
		open(path, O_RDWR | O_CREAT, 0600),
	};
	int fd = fds[0], at = 0;
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++, at += 2) {
		MUST(fds[i] >= 0 && lseek(fds[i], at * PAGE, SEEK_SET) == at * PAGE);
		read_pages(fds[i], at, 1);
	}
	struct iovec parts[] = { { page, 1000 }, { page + 1000, PAGE - 1000 } };
	MUST(is_page(pread(fd, page, PAGE, at * PAGE), page, at)); at += 2;
	MUST(is_page(pread64(fd, page, PAGE, at * PAGE), page, at)); at += 2;
	MUST(is_page(preadv(fd, parts, 2, at * PAGE), page, at)); at += 2;
	MUST(is_page(preadv64(fd, parts, 2, at * PAGE), page, at)); at += 2;
	MUST(is_page(preadv2(fd, parts, 2, at * PAGE, 0), page, at)); at += 2;
	MUST(is_page(preadv64v2(fd, parts, 2, at * PAGE, 0), page, at)); at += 2;
	MUST(lseek64(fd, at * PAGE, SEEK_SET) == at * PAGE);
	MUST(is_page(readv(fd, parts, 2), page, at)); at += 2;
	MUST(lseek(fd, PAGE, SEEK_CUR) == at * PAGE);
	MUST(is_page(preadv2(fd, parts, 2, -1, 0), page, at));
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) MUST(close(fds[i]) == 0);
}

/* Compiled with _FORTIFY_SOURCE these become __open_2, __read_chk and the like. */
static void fortified(const char *path)
{
	char local[PAGE];
	volatile size_t count = PAGE;
	volatile int flags = O_RDONLY;
	int fds[] = {
		open(path, flags), open64(path, flags),
		openat(AT_FDCWD, path, flags), openat64(AT_FDCWD, path, flags),
	};
	for (int i = 0; i < 4; i++) {
		MUST(fds[i] >= 0 && lseek(fds[i], i * PAGE, SEEK_SET) == i * PAGE);
		MUST(is_page(read(fds[i], local, count), local, i));
	}
	MUST(is_page(pread(fds[0], local, count, 4 * PAGE), local, 4));
	MUST(is_page(pread64(fds[0], local, count, 5 * PAGE), local, 5));
	MUST(close_range(fds[0], fds[3], 0) == 0);
}

/* One byte more than there is room for: the C library ends the program. */
static void overflow(const char *path)
{
	static char small[64];
	volatile size_t count = sizeof small + 1;
	int fd = must_open(path);
	if (read(fd, small, count) > 0) _exit(3);
}

/* A child of vfork that changes all descriptors, and then is another program. */
static void vforks(const char *path)
{
	int fd = must_open(path);
	read_pages(fd, 0, 2);
	pid_t child = vfork();
	if (child == 0) {
		for (int i = 3; i < 100; i++) close(i);
		int other = open("/proc/self/exe", O_RDONLY);
		if (dup2(other, fd) != fd || read(other, page, 64) != 64) _exit(1);
		execl("/proc/self/exe", "cases", "tail", path, (char *)0);
		_exit(1);
	}
	int status = -1;
	MUST(waitpid(child, &status, 0) == child && status == 0);
	read_pages(fd, 2, 30);
	MUST(close(fd) == 0);
}

/* The last page. */
static void tail(const char *path)
{
	int fd = must_open(path);
	off_t end = lseek(fd, -PAGE, SEEK_END);
	MUST(end > 0);
	read_pages(fd, end / PAGE, 1);
	MUST(close(fd) == 0);
}

static void forks(const char *path)
{
	int fd = must_open(path), own = must_open(path);
	read_pages(fd, 0, 1);
	pid_t child = fork();
	if (child == 0) {
		read_pages(fd, 1, 3);
		MUST(lseek(own, 10 * PAGE, SEEK_SET) == 10 * PAGE);
		read_pages(own, 10, 2);
		MUST(close(fd) == 0);
		exit(0);
	}
	int status = -1;
	MUST(waitpid(child, &status, 0) == child && status == 0);
	/* The position is shared with the child. */
	read_pages(fd, 4, 4);
	MUST(close(fd) == 0);
}

/* All descriptors closed, one by one and at once; then the same from its exec on. */
static void closes(const char *path)
{
	struct rlimit limit;
	MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (rlim_t i = 0; i < limit.rlim_cur && i < 70000; i++) close(i);
	closefrom(0);
	MUST(close_range(0, ~0u, 0) == 0);
	int fd = must_open(path);
	MUST(fd == 0);
	read_pages(fd, 0, 5);
	MUST(close(fd) == 0);
	execl("/proc/self/exe", "cases", "tail", path, (char *)0);
	_exit(1);
}

static int handled_fd;
static volatile sig_atomic_t handled;

static void handle(int signal)
{
	static char mine[PAGE];
	int before = errno;
	(void)signal;
	if (handled < 2000 && pread(handled_fd, mine, PAGE, (off_t)handled * PAGE % (64 * PAGE)) > 0)
		handled++;
	errno = before;
}

/* A handler that reads, called at any instruction of a loop that reads. */
static void signals(const char *path)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
	int fd = must_open(path), count = 8000;
	handled_fd = must_open(path);
	MUST(sigaction(SIGALRM, &action, 0) == 0 && setitimer(ITIMER_REAL, &often, 0) == 0);
	for (int i = 0; i < count; i++) {
		errno = 77;
		MUST(is_page(pread(fd, page, PAGE, i % 32 * PAGE), page, i % 32) && errno == 77);
	}
	MUST(setitimer(ITIMER_REAL, &never, 0) == 0);
	printf("%d\n", count + (int)handled);
}

static const char *threads_path;

static void *quarter(void *arg)
{
	static __thread char mine[PAGE];
	int first = (int)(intptr_t)arg * 64, fd = must_open(threads_path);
	for (int i = first; i < first + 32; i++)
		MUST(is_page(pread(fd, mine, PAGE, (off_t)i * PAGE), mine, i));
	MUST(lseek(fd, (first + 32) * PAGE, SEEK_SET) > 0);
	for (int i = first + 32; i < first + 64; i++) MUST(is_page(read(fd, mine, PAGE), mine, i));
	MUST(close(fd) == 0);
	return 0;
}

static void threads(const char *path)
{
	pthread_t all[4];
	threads_path = path;
	for (int i = 0; i < 4; i++) MUST(!pthread_create(all + i, 0, quarter, (void *)(intptr_t)i));
	for (int i = 0; i < 4; i++) MUST(!pthread_join(all[i], 0));
}

static int cleaned;
static void clean(void *arg) { (void)arg; cleaned = 1; }

static void *wait_for_ever(void *arg)
{
	pthread_cleanup_push(clean, 0);
	ssize_t got = read(*(int *)arg, page, 1);
	(void)got;
	pthread_cleanup_pop(0);
	return 0;
}

/* A thread that is cancelled while it waits in read. */
static void cancel(const char *path)
{
	int pipes[2];
	pthread_t thread;
	void *ended = 0;
	(void)path;
	MUST(pipe(pipes) == 0 && !pthread_create(&thread, 0, wait_for_ever, pipes));
	MUST(!pthread_cancel(thread) && !pthread_join(thread, &ended));
	MUST(ended == PTHREAD_CANCELED && cleaned);
}

static void errnos(const char *path)
{
	int pipes[2];
	MUST(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
	errno = 77;
	int fd = open(path, O_RDONLY);
	MUST(fd >= 0 && read(fd, page, PAGE) == PAGE && lseek(fd, 0, SEEK_SET) == 0);
	MUST(read(pipes[0], page, 1) == 1 && close(pipes[0]) == 0 && dup(fd) >= 0 && close(fd) == 0);
	MUST(errno == 77);
	errno = 0; MUST(read(fd, page, 1) == -1 && errno == EBADF);
	errno = 0; MUST(read(-5, page, 1) == -1 && errno == EBADF);
	errno = 0; MUST(read(100000, page, 1) == -1 && errno == EBADF);
	errno = 0; MUST(pread(pipes[1], page, 1, 0) == -1 && errno == ESPIPE);
	errno = 0; MUST(open("/none", O_RDONLY) == -1 && errno == ENOENT);
	errno = 0; MUST(close(fd) == -1 && errno == EBADF);
	errno = 0; MUST(dup2(fd, 9) == -1 && errno == EBADF);
	errno = 0; MUST(mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EBADF);
	errno = 0; MUST(!fopen("/none", "r") && errno == ENOENT);
}

static int must_create(const char *path)
{
	char name[4096];
	snprintf(name, sizeof name, "%s.copy", path);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	MUST(fd >= 0 && unlink(name) == 0);
	return fd;
}

/* Whether the last page of `to`, at `at`, is page `number`. */
static int is_copied(int to, int at, int number)
{
	return is_page(pread(to, page, PAGE, (off_t)at * PAGE), page, number);
}

/* Each call that moves bytes of a file, of which number i moves page 2 i to page i of a copy. */
static void moves(const char *path)
{
	int fd = must_open(path), to = must_create(path), pipes[2];
	MUST(pipe(pipes) == 0);
	off_t from = 0, end = 0;
	errno = 77;
	MUST(copy_file_range(fd, &from, to, &end, PAGE, 0) == PAGE && from == PAGE && end == PAGE);
	MUST(lseek(fd, 2 * PAGE, SEEK_SET) == 2 * PAGE && lseek(to, PAGE, SEEK_SET) == PAGE);
	MUST(copy_file_range(fd, 0, to, 0, PAGE, 0) == PAGE);
	MUST(lseek(fd, 0, SEEK_CUR) == 3 * PAGE && lseek(to, 0, SEEK_CUR) == 2 * PAGE);
	from = 4 * PAGE;
	MUST(sendfile(to, fd, &from, PAGE) == PAGE && from == 5 * PAGE);
	from = 6 * PAGE;
	MUST(sendfile64(to, fd, &from, PAGE) == PAGE && from == 7 * PAGE);
	MUST(lseek(fd, 8 * PAGE, SEEK_SET) == 8 * PAGE);
	MUST(sendfile(to, fd, 0, PAGE) == PAGE && lseek(fd, 0, SEEK_CUR) == 9 * PAGE);
	from = 10 * PAGE;
	MUST(splice(fd, &from, pipes[1], 0, PAGE, 0) == PAGE && from == 11 * PAGE);
	MUST(splice(pipes[0], 0, to, 0, PAGE, 0) == PAGE);
	MUST(lseek(fd, 12 * PAGE, SEEK_SET) == 12 * PAGE);
	MUST(splice(fd, 0, pipes[1], 0, PAGE, 0) == PAGE && lseek(fd, 0, SEEK_CUR) == 13 * PAGE);
	MUST(read(pipes[0], page, PAGE) == PAGE && is_page(PAGE, page, 12) && errno == 77);
	for (int i = 0; i < 6; i++) MUST(is_copied(to, i, 2 * i));
}

/* Long moves, of which less is moved than was asked for: from page 1 on, from page 200 on. */
static void long_moves(const char *path)
{
	int fd = must_open(path), to = must_create(path);
	off_t from = 200 * PAGE, size = lseek(fd, 0, SEEK_END);
	MUST(lseek(fd, PAGE, SEEK_SET) == PAGE);
	MUST(copy_file_range(fd, 0, to, 0, SIZE_MAX >> 1, 0) == size - PAGE);
	MUST(copy_file_range(fd, 0, to, 0, SIZE_MAX >> 1, 0) == 0);
	MUST(sendfile(to, fd, &from, 1 << 30) == size - 200 * PAGE && from == size);
	MUST(is_copied(to, 0, 1) && is_copied(to, size / PAGE - 1, 200));
}

/* What cannot be moved: nothing is, and errno says why. */
static void refused_moves(const char *path)
{
	int fd = must_open(path), to = must_create(path), pipes[2], long_ago = must_open(path);
	size_t counts[] = { PAGE, 1 << 20 };
	off_t *nowhere = (off_t *)8, at = 0;
	MUST(pipe(pipes) == 0 && close(long_ago) == 0);
	for (int i = 0; i < 2; i++) {
		size_t count = counts[i];
		errno = 0; MUST(copy_file_range(long_ago, 0, to, 0, count, 0) == -1 && errno == EBADF);
		errno = 0; MUST(copy_file_range(fd, 0, long_ago, 0, count, 0) == -1 && errno == EBADF);
		errno = 0; MUST(copy_file_range(fd, 0, fd, 0, count, 0) == -1 && errno == EBADF);
		errno = 0; MUST(copy_file_range(fd, 0, to, 0, count, 1) == -1 && errno == EINVAL);
		errno = 0; MUST(copy_file_range(fd, 0, pipes[1], 0, count, 0) == -1 && errno == EINVAL);
		errno = 0; MUST(copy_file_range(fd, nowhere, to, 0, count, 0) == -1 && errno == EFAULT);
		errno = 0; MUST(copy_file_range(fd, 0, to, nowhere, count, 0) == -1 && errno == EFAULT);
		errno = 0; MUST(sendfile(long_ago, fd, 0, count) == -1 && errno == EBADF);
		errno = 0; MUST(sendfile(to, -1, 0, count) == -1 && errno == EBADF);
		errno = 0; MUST(sendfile(to, fd, nowhere, count) == -1 && errno == EFAULT);
		errno = 0; MUST(sendfile(to, pipes[0], &at, count) == -1 && errno == ESPIPE);
		errno = 0; MUST(splice(fd, 0, to, 0, count, 0) == -1 && errno == EINVAL);
		errno = 0; MUST(splice(fd, nowhere, pipes[1], 0, count, 0) == -1 && errno == EFAULT);
		errno = 0; MUST(splice(-1, 0, pipes[1], 0, count, 0) == -1 && errno == EBADF);
	}
	int memory = memfd_create("memory", 0);
	errno = 0; MUST(copy_file_range(fd, 0, memory, 0, 1 << 20, 0) == -1 && errno == EXDEV);
	MUST(lseek(fd, 0, SEEK_CUR) == 0 && lseek(to, 0, SEEK_END) == 0 && at == 0);
}

/* Numbers that become another file's, by dup2 and by closing. */
static void renumbers(const char *path)
{
	int exe = open("/proc/self/exe", O_RDONLY), fd = must_open(path), zero, old = fd;
	MUST(exe >= 0 && read(exe, page, 100) == 100 && dup2(fd, exe) == exe);
	read_pages(exe, 0, 2);
	MUST(close(fd) == 0 && (zero = open("/dev/zero", O_RDONLY)) == old);
	MUST(read(zero, page, PAGE) == PAGE && close(zero) == 0);
	MUST(dup3(exe, old, O_CLOEXEC) == old);
	read_pages(old, 2, 2);
	MUST(close(old) == 0 && close(exe) == 0);
}

/* A stream: the reads are the C library's own. Then the number is a file's of ours. */
static void streams(const char *path)
{
	FILE *stream = fopen(path, "r");
	MUST(stream && fread(page, PAGE, 1, stream) == 1);
	int fd = fileno(stream);
	MUST(fclose(stream) == 0 && open("/dev/zero", O_RDONLY) == fd);
	MUST(read(fd, page, PAGE) == PAGE);
	MUST((stream = fopen64("/dev/null", "w+")) && (stream = freopen(path, "r", stream)));
	MUST(fread(page, PAGE, 1, stream) == 1 && fclose(stream) == 0);
	MUST((stream = fopen("/dev/null", "a")) && fclose(stream) == 0);
}

static void maps(const char *path)
{
	int fd = must_open(path);
	char *at = mmap(0, 8 * PAGE, PROT_READ, MAP_PRIVATE, fd, 16 * PAGE);
	MUST(at != MAP_FAILED && is_page(PAGE, at + 3 * PAGE, 19));
	at = mmap64(0, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
	MUST(at != MAP_FAILED && is_page(PAGE, at, 1) && close(fd) == 0);
	at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(at != MAP_FAILED && !*at);
}

/* A filter under which the calls that the shim makes for itself are deadly. */
static void confined(const char *path)
{
#define DEADLY(call) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		DEADLY(SYS_fstat), DEADLY(SYS_lseek), DEADLY(SYS_getpid), DEADLY(SYS_getppid),
		DEADLY(SYS_madvise), DEADLY(SYS_fcntl),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };
	int fd = must_open(path);
	read_pages(fd, 0, 2);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
	read_pages(fd, 2, 40);
	MUST(close(fd) == 0 && (fd = open(path, O_RDONLY)) >= 0);
	read_pages(fd, 0, 1);
	MUST(dup2(fd, 50) == 50 && close(50) == 0);
	_exit(0);
}

/* Runs before the constructor of any library. */
static int early_pages = -1;
static void early(int argc, char **argv, char **environment)
{
	(void)environment;
	if (argc < 3 || strcmp(argv[1], "early")) return;
	int fd = open(argv[2], O_RDONLY);
	MUST(fd >= 0 && lseek(fd, PAGE, SEEK_SET) == PAGE);
	read_pages(fd, 1, 2);
	MUST(is_page(pread(fd, page, PAGE, 0), page, 0) && dup2(fd, fd) == fd);
	MUST(dup2(fd, 77) == 77 && close(77) == 0 && dup2(77, 77) == -1 && errno == EBADF);
	char *at = mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 5 * PAGE);
	MUST(at != MAP_FAILED && is_page(PAGE, at, 5) && close(fd) == 0);
	MUST(open("/none", O_RDONLY) == -1 && errno == ENOENT);
	FILE *stream = fopen(argv[2], "r");
	MUST(stream && fread(page, PAGE, 1, stream) == 1 && fclose(stream) == 0);
	early_pages = 3;
}
__attribute__((section(".preinit_array"), used))
static void (*early_at)(int, char **, char **) = early;

static void after_early(const char *path)
{
	int fd = must_open(path);
	MUST(early_pages == 3);
	read_pages(fd, 0, 1);
	MUST(close(fd) == 0);
}

/* What is read from the standard input, whose opening was not recorded. */
static void inherited(const char *path)
{
	(void)path;
	read_pages(0, 0, 6);
	MUST(close(0) == 0);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* Nanoseconds of processor time: a 4 KiB read in order; one at random; to open and close. */
static void costs(const char *path)
{
	int fd = must_open(path), count = 20000;
	read_pages(fd, 0, 256);
	double start = now();
	for (int i = 0; i < count; i++) {
		if (i % 256 == 0) lseek(fd, 0, SEEK_SET);
		MUST(read(fd, page, PAGE) == PAGE);
	}
	double middle = now();
	for (int i = 0; i < count; i++)
		MUST(pread(fd, page, PAGE, (off_t)(i * 37 % 256) * PAGE) == PAGE);
	double after = now();
	for (int i = 0; i < count / 10; i++) close(open(path, O_RDONLY));
	double end = now();
	printf("%.0f %.0f %.0f\n", (middle - start) / count, (after - middle) / count,
		(end - after) / count * 10);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*act)(const char *); } cases[] = {
		{ "forms", forms }, { "fortified", fortified }, { "overflow", overflow },
		{ "vforks", vforks }, { "tail", tail }, { "forks", forks }, { "closes", closes },
		{ "signals", signals }, { "threads", threads }, { "cancel", cancel },
		{ "errnos", errnos }, { "renumbers", renumbers }, { "streams", streams },
		{ "maps", maps }, { "confined", confined }, { "early", after_early },
		{ "inherited", inherited }, { "costs", costs }, { "moves", moves },
		{ "long_moves", long_moves }, { "refused_moves", refused_moves },
	};
	for (size_t i = 0; argc > 2 && i < sizeof cases / sizeof *cases; i++)
		if (!strcmp(argv[1], cases[i].name)) { cases[i].act(argv[2]); return 0; }
	return 2;
}
