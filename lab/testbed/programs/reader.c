/* reader.c - programs that read and compute, for `cargo xtask bench programs`.
 *
 *   reader read FILE MB_PER_SECOND        read(2) of 64 KiB, in order
 *   reader map FILE MB_PER_SECOND         the same by a mapping
 *   reader random FILE COUNT              pread(2) of 4 KiB at random places
 *
 * Computing is a loop that takes a chunk's time at the rate, after the chunk is there: it does not
 * overlap with reading, as in most programs. Prints a sum of what it read. Built statically.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int main(int count, char **words) {
	if (count != 4) return fprintf(stderr, "usage: reader read|map|random FILE NUMBER\n"), 2;
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
