/* What a program inherits: prints all of it, or sets some of it and becomes another program.
 *
 *     probe show FILE            appends to FILE what this process is given; exit status 7
 *     probe as STATE PROGRAM...  becomes PROGRAM in that state
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;
static FILE *out;

static void fail(const char *what) {
    perror(what);
    exit(99);
}

static void link_of(const char *name, const char *path) {
    char to[4096];
    ssize_t length = readlink(path, to, sizeof to - 1);
    to[length < 0 ? 0 : length] = 0;
    fprintf(out, "%s: %s\n", name, length < 0 ? strerror(errno) : to);
}

static void file_of(const char *path, const char *const *keys) {
    FILE *file = fopen(path, "r");
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        int wanted = !keys;
        for (int at = 0; keys && keys[at]; at++)
            wanted |= !strncmp(line, keys[at], strlen(keys[at]));
        if (wanted) fprintf(out, "%s: %s", path, line);
    }
    if (file) fclose(file);
}

static void descriptor(int number) {
    struct stat stat;
    if (fstat(number, &stat)) return;
    char path[64], to[512];
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    ssize_t length = readlink(path, to, sizeof to - 1);
    to[length < 0 ? 0 : length] = 0;
    /* The shim's ring is one of the differences that the manual names. */
    if (strstr(to, "memfd:forerun-ring")) return;
    if (to[0] != '/') *strchrnul(to, '[') = 0;
    int flags = fcntl(number, F_GETFL), own = fcntl(number, F_GETFD);
    long at = lseek(number, 0, SEEK_CUR);
    fprintf(out, "fd %d: %s mode %o flags %o own %d at %ld tty %d\n", number, to, stat.st_mode,
            flags, own, at, isatty(number));
}

static void descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    if (!all) fail("/proc/self/fd");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(all));) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number == dirfd(all) || number == fileno(out)) continue;
        count++;
        if (number < 100) descriptor(number);
    }
    closedir(all);
    fprintf(out, "fds below 100 and others, without the shim's: see above\n");
    if (count > 100) fprintf(out, "hundreds of fds: %d\n", count / 100);
}

static void signals(void) {
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action)) continue;
        const char *how = action.sa_handler == SIG_IGN   ? "ignored"
                          : action.sa_handler == SIG_DFL ? NULL
                                                         : "handled";
        if (how) fprintf(out, "signal %d: %s\n", signal, how);
    }
    static const char *const keys[] = {"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Umask",
        "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
        "Seccomp", "Cpus_allowed_list", "Mems_allowed_list", "CoreDumping", "THP_enabled", "Threads",
        "TracerPid", NULL};
    file_of("/proc/self/status", keys);
    stack_t stack;
    sigaltstack(NULL, &stack);
    fprintf(out, "altstack flags %d size %zu\n", stack.ss_flags, stack.ss_size);
    for (int timer = 0; timer < 3; timer++) {
        struct itimerval left;
        getitimer(timer, &left);
        fprintf(out, "timer %d runs %d interval %ld\n", timer,
                left.it_value.tv_sec || left.it_value.tv_usec, (long)left.it_interval.tv_sec);
    }
}

static void limits(void) {
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit;
        getrlimit(which, &limit);
        fprintf(out, "limit %d: %lu %lu\n", which, (unsigned long)limit.rlim_cur,
                (unsigned long)limit.rlim_max);
    }
    fprintf(out, "nice %d scheduler %d io %ld slack %d\n", getpriority(PRIO_PROCESS, 0),
            sched_getscheduler(0), syscall(SYS_ioprio_get, 1, 0), prctl(PR_GET_TIMERSLACK));
    int death = 0, reaper = 0;
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    fprintf(out, "dumpable %d privileges %d death %d reaper %d keep %d bits %d thp %d persona %x\n",
            prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), death, reaper,
            prctl(PR_GET_KEEPCAPS), prctl(PR_GET_SECUREBITS), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0),
            personality(0xffffffff));
    file_of("/proc/self/oom_score_adj", NULL);
    file_of("/proc/self/coredump_filter", NULL);
    file_of("/proc/self/cgroup", NULL);
}

static int is(const char *name, pid_t id) {
    const char *value = getenv(name);
    return value && atoi(value) == id;
}

static void places(void) {
    link_of("cwd", "/proc/self/cwd");
    link_of("root", "/proc/self/root");
    static const char *const spaces[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    for (size_t at = 0; at < sizeof spaces / sizeof *spaces; at++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", spaces[at]);
        link_of(spaces[at], path);
    }
    fprintf(out, "session of the starter %d, group of the starter %d\n",
            is("PROBE_SESSION", getsid(0)), is("PROBE_GROUP", getpgrp()));
    int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    fprintf(out, "terminal %d", tty >= 0);
    if (tty >= 0) {
        struct termios mode;
        tcgetattr(tty, &mode);
        fprintf(out, " foreground %d modes %x %x %x %x", tcgetpgrp(tty) == getpgrp(), mode.c_iflag,
                mode.c_oflag, mode.c_cflag, mode.c_lflag);
        close(tty);
    }
    fprintf(out, "\nchildren: %s\n", waitpid(-1, NULL, WNOHANG) < 0 ? strerror(errno) : "some");
}

static int show(int count, char **words) {
    /* The number is none that an inherited descriptor is shown for. */
    int file = open(words[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int high = fcntl(file, F_DUPFD_CLOEXEC, 100);
    if (high >= 0) close(file);
    out = fdopen(high >= 0 ? high : file, "a");
    if (!out) exit(98);
    for (int at = 0; at < count; at++) fprintf(out, "word %s\n", words[at]);
    for (char **at = environ; *at; at++)
        if (strncmp(*at, "PROBE_", 6) && strncmp(*at, "LD_PRELOAD=", 11) &&
            strncmp(*at, "FORERUN_", 8))
            fprintf(out, "variable %s\n", *at);
    descriptors();
    signals();
    limits();
    places();
    fclose(out);
    /* Both streams in turn, where they are open. */
    if (write(1, "out\n", 4) < 0 || write(2, "err\n", 4) < 0) return 7;
    return 7;
}

static void set_number(const char *name, long number) {
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    setenv(name, text, 1);
}

static void handle(int signal) { (void)signal; }

static void limit(int which, rlim_t soft) {
    struct rlimit both;
    getrlimit(which, &both);
    both.rlim_cur = soft;
    if (setrlimit(which, &both)) fail("setrlimit");
}

static void many_descriptors(void) {
    struct rlimit both;
    getrlimit(RLIMIT_NOFILE, &both);
    both.rlim_cur = both.rlim_max;
    setrlimit(RLIMIT_NOFILE, &both);
    /* As many as 20,000, where a few are left for the program itself. */
    for (rlim_t at = 0; at < 20000 && at + 100 < both.rlim_max; at++)
        if (dup(0) < 0) break;
}

static void adjust_oom(void) {
    FILE *file = fopen("/proc/self/oom_score_adj", "w");
    if (!file) return;
    fputs("300", file);
    fclose(file);
}

/* Has a signal of the kernel's, or its own, wait to be let through. */
static void pend(const char *state) {
    sigset_t pending;
    struct itimerval soon = {.it_value = {0, 1000}};
    if (!strcmp(state, "pending-alarm")) setitimer(ITIMER_REAL, &soon, NULL);
    else if (!strcmp(state, "pending-user")) kill(getpid(), SIGUSR1);
    else {
        pid_t child = fork();
        if (child == 0) _exit(0);
    }
    int number = !strcmp(state, "pending-alarm") ? SIGALRM
                 : !strcmp(state, "pending-user") ? SIGUSR1
                                                  : SIGCHLD;
    do sigpending(&pending);
    while (!sigismember(&pending, number));
    /* The child was not waited for by a program that knows of it. */
    if (number == SIGCHLD) waitpid(-1, NULL, 0);
}

static void closed(const char *numbers) {
    for (; *numbers; numbers++) close(*numbers - '0');
}

static void put(const char *state) {
    sigset_t set;
    sigfillset(&set);
    if (!strncmp(state, "closed-", 7)) closed(state + 7);
    else if (!strcmp(state, "pipe-ignored")) signal(SIGPIPE, SIG_IGN);
    else if (!strcmp(state, "children-ignored")) signal(SIGCHLD, SIG_IGN);
    else if (!strcmp(state, "all-ignored"))
        for (int at = 1; at <= SIGRTMAX; at++) signal(at, SIG_IGN);
    else if (!strcmp(state, "all-handled"))
        for (int at = 1; at <= SIGRTMAX; at++) signal(at, handle);
    else if (!strcmp(state, "all-blocked")) sigprocmask(SIG_SETMASK, &set, NULL);
    else if (!strcmp(state, "few-descriptors")) limit(RLIMIT_NOFILE, 40);
    else if (!strcmp(state, "fewest-descriptors")) limit(RLIMIT_NOFILE, 6);
    else if (!strcmp(state, "many-descriptors")) many_descriptors();
    else if (!strcmp(state, "small-stack")) limit(RLIMIT_STACK, 1 << 20);
    else if (!strcmp(state, "no-core")) limit(RLIMIT_CORE, 0);
    else if (!strcmp(state, "no-locks")) limit(RLIMIT_MEMLOCK, 0);
    else if (!strcmp(state, "small-files")) limit(RLIMIT_FSIZE, 500000);
    else if (!strcmp(state, "nice")) setpriority(PRIO_PROCESS, 0, 7);
    else if (!strcmp(state, "pending-alarm") || !strcmp(state, "pending-child") ||
             !strcmp(state, "pending-user")) {
        sigprocmask(SIG_SETMASK, &set, NULL);
        pend(state);
    } else if (!strcmp(state, "batch-of-one") || !strcmp(state, "real-time-of-one")) {
        /* The second is a privilege; without it the row is as `plain`. */
        int policy = strcmp(state, "batch-of-one") ? SCHED_RR : SCHED_BATCH;
        struct sched_param priority = {policy == SCHED_RR};
        sched_setscheduler(0, policy | SCHED_RESET_ON_FORK, &priority);
    }
    else if (!strcmp(state, "batch")) {
        struct sched_param none = {0};
        sched_setscheduler(0, SCHED_BATCH, &none);
    } else if (!strcmp(state, "one-processor")) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        sched_setaffinity(0, sizeof one, &one);
    } else if (!strcmp(state, "slack")) prctl(PR_SET_TIMERSLACK, 123456);
    else if (!strcmp(state, "io-priority")) syscall(SYS_ioprio_set, 1, 0, (3 << 13));
    else if (!strcmp(state, "umask")) umask(0137);
    else if (!strcmp(state, "no-new-privileges")) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    else if (!strcmp(state, "parent-death")) prctl(PR_SET_PDEATHSIG, SIGUSR2);
    else if (!strcmp(state, "subreaper")) prctl(PR_SET_CHILD_SUBREAPER, 1);
    else if (!strcmp(state, "no-huge-pages")) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    else if (!strcmp(state, "persona")) personality(ADDR_NO_RANDOMIZE);
    else if (!strcmp(state, "oom")) adjust_oom();
    else if (!strcmp(state, "alarm")) {
        struct itimerval later = {.it_interval = {11, 0}, .it_value = {3000, 0}};
        for (int timer = 0; timer < 3; timer++) setitimer(timer, &later, NULL);
    } else if (!strcmp(state, "session")) {
        /* A leader of a session has a starter that waits for it. */
        pid_t child = fork();
        if (child > 0) {
            int status;
            waitpid(child, &status, 0);
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        setsid();
    } else if (!strcmp(state, "group")) setpgid(0, 0);
    else if (!strcmp(state, "descriptors")) {
        int both[2];
        if (pipe(both)) fail("pipe");
        dup2(both[0], 11);
        dup2(both[1], 12);
        dup2(open("/proc/version", O_RDONLY), 77);
        dup2(open(".", O_RDONLY | O_DIRECTORY), 78);
    } else if (!strcmp(state, "no-variables")) {
        clearenv();
        setenv("PATH", "/usr/bin:/bin", 1);
    } else if (!strcmp(state, "odd-variables")) {
        static char *odd[] = {"Z=1", "A=2", "Z=3", "no value", "=empty", "PATH=/usr/bin:/bin",
                              "\xff=\xfe", NULL};
        environ = odd;
        if (getenv("Z") == NULL) exit(97);
    } else if (!strcmp(state, "no-folder")) {
        if (mkdir("gone", 0700) || chdir("gone") || rmdir("../gone")) fail("gone");
    } else if (strcmp(state, "plain")) exit(96);
}

int main(int count, char **words) {
    if (count < 3) return 95;
    if (!strcmp(words[1], "show")) return show(count, words);
    const char *shim = getenv("FORERUN_PRELOAD");
    char *kept = shim ? strdup(shim) : NULL;
    put(words[2]);
    if (kept) setenv("FORERUN_PRELOAD", kept, 1);
    set_number("PROBE_SESSION", getsid(0));
    set_number("PROBE_GROUP", getpgrp());
    execvp(words[3], words + 3);
    return 94;
}
