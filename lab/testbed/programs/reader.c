/* reader.c - programs that read and compute, for `cargo xtask bench programs`.
 *
 *   reader read FILE MB_PER_SECOND        read(2) of 64 KiB, in order
 *   reader map FILE MB_PER_SECOND         the same by a mapping
 *   reader random FILE COUNT              pread(2) of 4 KiB at random places
 *   reader tree FOLDER THREADS            threads that take the files of a tree one after the other
 *   reader ahead LIST THREADS             threads that open each path of a list, and request a file
 *                                         whole or read a directory: the bound of prefetching
 *
 * Computing is a loop that takes a chunk's time at the rate, after the chunk is there: it does not
 * overlap with reading, as in most programs. Prints a sum of what it read. Built statically.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, PAGE = 4 << 10 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t sum_of(const unsigned char *bytes, size_t length) {
	uint64_t sum = 0;
	for (size_t at = 0; at < length; at += 64) sum = sum * 31 + bytes[at];
	return sum;
}

static void compute(double seconds) {
	for (double end = now() + seconds; now() < end;) {}
}

static void fail(const char *what) {
	perror(what);
	exit(1);
}

/* The files of a tree, as they were found, and the next of them. */
static char **paths;
static size_t found, next;
static uint64_t tree_sum;

static int add(const char *path, const struct stat *stat, int kind, struct FTW *place) {
	(void)stat, (void)place;
	if (kind != FTW_F) return 0;
	if (found % 1024 == 0 && !(paths = realloc(paths, (found + 1024) * sizeof *paths))) fail("realloc");
	if (!(paths[found++] = strdup(path))) fail("strdup");
	return 0;
}

static void *read_files(void *unused) {
	static _Thread_local unsigned char bytes[CHUNK];
	for (size_t at; (at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < found;) {
		int file = open(paths[at], O_RDONLY);
		if (file < 0) fail(paths[at]);
		ssize_t got;
		uint64_t sum = at;
		while ((got = read(file, bytes, CHUNK)) > 0) sum = sum * 31 + sum_of(bytes, got);
		if (got < 0) fail("read");
		close(file);
		__atomic_fetch_add(&tree_sum, sum, __ATOMIC_RELAXED);
	}
	return unused;
}

static void *request_files(void *unused) {
	static _Thread_local char names[CHUNK];
	for (size_t at; (at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < found;) {
		int file = open(paths[at], O_RDONLY | O_NONBLOCK | O_NOATIME);
		struct stat stat;
		if (file < 0 || fstat(file, &stat)) fail(paths[at]);
		if (S_ISDIR(stat.st_mode))
			while (syscall(SYS_getdents64, file, names, sizeof names) > 0) {}
		else
			/* One call requests no more than the device's largest request. */
			for (off_t from = 0; from < stat.st_size; from += 1 << 20) readahead(file, from, 1 << 20);
		close(file);
	}
	return unused;
}

static void by_threads(void *(*work)(void *), int threads) {
	pthread_t all[64];
	if (threads < 1 || threads > 64) fail("threads");
	for (int at = 0; at < threads; at++)
		if (pthread_create(all + at, 0, work, 0)) fail("pthread_create");
	for (int at = 0; at < threads; at++) pthread_join(all[at], 0);
}

static uint64_t tree(const char *folder, int threads) {
	if (nftw(folder, add, 16, FTW_PHYS)) fail(folder);
	by_threads(read_files, threads);
	return tree_sum;
}

static uint64_t ahead(const char *list, int threads) {
	static char line[8192];
	struct stat unused;
	struct FTW place;
	FILE *file = fopen(list, "r");
	if (!file) fail(list);
	while (fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		add(line, &unused, FTW_F, &place);
	}
	by_threads(request_files, threads);
	return found;
}

int main(int count, char **words) {
	if (count != 4) return fprintf(stderr, "usage: reader read|map|random|tree|ahead PATH NUMBER\n"), 2;
	if (!strcmp(words[1], "tree")) {
		printf("%llu\n", (unsigned long long)tree(words[2], atoi(words[3])));
		return 0;
	}
	if (!strcmp(words[1], "ahead")) {
		printf("%llu\n", (unsigned long long)ahead(words[2], atoi(words[3])));
		return 0;
	}
	int file = open(words[2], O_RDONLY);
	struct stat stat;
	if (file < 0 || fstat(file, &stat)) fail(words[2]);
	static unsigned char buffer[CHUNK];
	uint64_t sum = 0;
	double number = atof(words[3]), chunk_seconds = CHUNK / (number * 1e6);
	if (!strcmp(words[1], "read")) {
		for (ssize_t got; (got = read(file, buffer, CHUNK)) != 0; compute(chunk_seconds)) {
			if (got < 0) fail("read");
			sum += sum_of(buffer, got);
		}
	} else if (!strcmp(words[1], "map")) {
		const unsigned char *bytes = mmap(0, stat.st_size, PROT_READ, MAP_SHARED, file, 0);
		if (bytes == MAP_FAILED) fail("mmap");
		for (off_t at = 0; at < stat.st_size; at += CHUNK) {
			off_t left = stat.st_size - at;
			sum += sum_of(bytes + at, left < CHUNK ? left : CHUNK);
			compute(chunk_seconds);
		}
	} else if (!strcmp(words[1], "random")) {
		uint64_t state = 88172645463325252u;
		for (long reads = number; reads > 0; reads--) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			off_t at = state % (stat.st_size / PAGE) * PAGE;
			if (pread(file, buffer, PAGE, at) != PAGE) fail("pread");
			sum += sum_of(buffer, PAGE);
		}
	} else {
		return fprintf(stderr, "reader: no %s\n", words[1]), 2;
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
