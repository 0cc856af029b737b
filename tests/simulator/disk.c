/* Records what a process writes below a folder, so that a loss of power can be played: `LD_PRELOAD`.

The record is a file of entries: letter, length of path, path, offset, length of data, data. Letters:
w: data at an offset; t: cut to a length (the offset); c: made; f: flushed to the disk, with its whole content; s: a
folder, flushed; r: renamed to the path in data; u: removed; m: folder made; d: folder removed. Only after record_to() something is recorded. The last
thing that a killed process did may be missing: it was not confirmed to anybody. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int out = -1;
static char root[4096];

static long left = 0;

/* The process is killed behind its n-th write, flush or change of names from now on. */
void die_after(long writes) { left = writes; }

static ssize_t (*plain_write)(int, const void *, size_t);

void record_to(int descriptor, const char *folder) {
    plain_write = dlsym(RTLD_NEXT, "write");
    strncpy(root, folder, sizeof root - 1);
    out = descriptor;
}

static void all(const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t done = plain_write(out, at, length);
        if (done <= 0) abort();
        at += done, length -= done;
    }
}

static void entry(char letter, const char *path, uint64_t offset, const void *data, uint64_t length) {
    if (out < 0 || strncmp(path, root, strlen(root))) return;
    if (left && !--left) kill(getpid(), SIGKILL);
    int kept = errno;
    uint64_t size = strlen(path);
    char *whole = malloc(25 + size + length);
    size_t at = 0;
    whole[at++] = letter;
    memcpy(whole + at, &size, 8), at += 8;
    memcpy(whole + at, path, size), at += size;
    memcpy(whole + at, &offset, 8), at += 8;
    memcpy(whole + at, &length, 8), at += 8;
    memcpy(whole + at, data, length), at += length;
    all(whole, at); /* One write: a process that is killed leaves no half an entry but the last. */
    free(whole);
    errno = kept;
}

static int of(int descriptor, char *path) {
    char link[64];
    if (out < 0 || descriptor == out) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, 4095);
    if (length <= 0) return 0;
    path[length] = 0;
    return !strncmp(path, root, strlen(root));
}

static const char *full(int folder, const char *name, char *path) {
    if (out < 0) return name;
    if (!strncmp(name, "/proc/", 6)) { /* A folder by its descriptor. */
        char parent[4096], found[4096];
        snprintf(parent, sizeof parent, "%s", name);
        char *last = strrchr(parent, '/');
        *last = 0;
        if (!realpath(parent, found)) return name;
        snprintf(path, 4096, "%.2000s/%.2000s", found, last + 1);
    } else if (name[0] == '/') snprintf(path, 4096, "%s", name);
    else if (folder == AT_FDCWD) {
        if (!getcwd(path, 4000)) return name;
        strncat(path, "/", 2), strncat(path, name, 4000 - strlen(path));
    } else {
        if (!of(folder, path)) return name;
        strncat(path, "/", 2), strncat(path, name, 4000 - strlen(path));
    }
    return path;
}

#define PLAIN(type, name, ...) \
    static type (*plain)(__VA_ARGS__); \
    if (!plain) plain = dlsym(RTLD_NEXT, name)

ssize_t write(int descriptor, const void *data, size_t length) {
    PLAIN(ssize_t, "write", int, const void *, size_t);
    char path[4096];
    int mine = of(descriptor, path);
    struct stat about;
    off_t at = mine ? lseek(descriptor, 0, SEEK_CUR) : 0;
    if (mine && (fcntl(descriptor, F_GETFL) & O_APPEND) && !fstat(descriptor, &about)) at = about.st_size;
    ssize_t done = plain(descriptor, data, length);
    if (mine && done > 0) entry('w', path, at, data, done);
    return done;
}

#define PWRITE(name, offset_type) \
    ssize_t name(int descriptor, const void *data, size_t length, offset_type at) { \
        PLAIN(ssize_t, #name, int, const void *, size_t, offset_type); \
        char path[4096]; \
        ssize_t done = plain(descriptor, data, length, at); \
        if (done > 0 && of(descriptor, path)) entry('w', path, at, data, done); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    ssize_t total = 0;
    for (int n = 0; n < count; n++) {
        ssize_t done = write(descriptor, parts[n].iov_base, parts[n].iov_len);
        if (done < 0) return total ? total : done;
        total += done;
        if ((size_t)done < parts[n].iov_len) break;
    }
    return total;
}

#define CUT(name, offset_type) \
    int name(int descriptor, offset_type length) { \
        PLAIN(int, #name, int, offset_type); \
        char path[4096]; \
        int done = plain(descriptor, length); \
        if (!done && of(descriptor, path)) entry('t', path, length, "", 0); \
        return done; \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

/* What a library writes by stdio passes by here, so a flush records the whole content of a file. */
static void flushed(int descriptor) {
    char path[4096], link[64];
    struct stat about;
    if (!of(descriptor, path)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    static int (*plain_open)(const char *, int, ...);
    if (!plain_open) plain_open = dlsym(RTLD_NEXT, "open");
    int reading = plain_open(link, O_RDONLY);
    if (reading < 0 || fstat(reading, &about) || !S_ISREG(about.st_mode)) entry('s', path, 0, "", 0);
    else {
        char *content = malloc(about.st_size + 1);
        ssize_t length = read(reading, content, about.st_size);
        entry('f', path, 0, content, length < 0 ? 0 : length);
        free(content);
    }
    if (reading >= 0) close(reading);
}

#define FLUSH(name) \
    int name(int descriptor) { \
        PLAIN(int, #name, int); \
        int done = plain(descriptor); \
        if (!done) flushed(descriptor); \
        return done; \
    }
FLUSH(fsync)
FLUSH(fdatasync)

static void opened(int descriptor, int flags) {
    char path[4096];
    if (descriptor < 0 || !(flags & (O_CREAT | O_TRUNC)) || !of(descriptor, path)) return;
    entry(flags & O_TRUNC ? 't' : 'c', path, 0, "", 0);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        PLAIN(int, #name, const char *, int, ...); \
        __builtin_va_list more; \
        __builtin_va_start(more, flags); \
        int mode = (flags & O_CREAT) ? __builtin_va_arg(more, int) : 0; \
        __builtin_va_end(more); \
        int descriptor = plain(path, flags, mode); \
        opened(descriptor, flags); \
        return descriptor; \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        PLAIN(int, #name, int, const char *, int, ...); \
        __builtin_va_list more; \
        __builtin_va_start(more, flags); \
        int mode = (flags & O_CREAT) ? __builtin_va_arg(more, int) : 0; \
        __builtin_va_end(more); \
        int descriptor = plain(folder, path, flags, mode); \
        opened(descriptor, flags); \
        return descriptor; \
    }
OPENAT(openat)
OPENAT(openat64)

int renameat(int here, const char *from, int there, const char *to) {
    PLAIN(int, "renameat", int, const char *, int, const char *);
    char one[4096], two[4096];
    const char *source = full(here, from, one), *target = full(there, to, two);
    int done = plain(here, from, there, to);
    if (!done) entry('r', source, 0, target, strlen(target));
    return done;
}

int mkdirat(int folder, const char *name, mode_t mode) {
    PLAIN(int, "mkdirat", int, const char *, mode_t);
    char path[4096];
    const char *target = full(folder, name, path);
    int done = plain(folder, name, mode);
    if (!done) entry('m', target, 0, "", 0);
    return done;
}

int rename(const char *from, const char *to) {
    PLAIN(int, "rename", const char *, const char *);
    char one[4096], two[4096];
    const char *target = full(AT_FDCWD, to, two);
    int done = plain(from, to);
    if (!done) entry('r', full(AT_FDCWD, from, one), 0, target, strlen(target));
    return done;
}

int unlink(const char *name) {
    PLAIN(int, "unlink", const char *);
    char path[4096];
    int done = plain(name);
    if (!done) entry('u', full(AT_FDCWD, name, path), 0, "", 0);
    return done;
}

int unlinkat(int folder, const char *name, int flags) {
    PLAIN(int, "unlinkat", int, const char *, int);
    char path[4096];
    const char *target = full(folder, name, path);
    int done = plain(folder, name, flags);
    if (!done) entry(flags & AT_REMOVEDIR ? 'd' : 'u', target, 0, "", 0);
    return done;
}

int mkdir(const char *name, mode_t mode) {
    PLAIN(int, "mkdir", const char *, mode_t);
    char path[4096];
    int done = plain(name, mode);
    if (!done) entry('m', full(AT_FDCWD, name, path), 0, "", 0);
    return done;
}

int rmdir(const char *name) {
    PLAIN(int, "rmdir", const char *);
    char path[4096];
    int done = plain(name);
    if (!done) entry('d', full(AT_FDCWD, name, path), 0, "", 0);
    return done;
}

/* Copies inside of the system would pass by: those who want one copy by read and write then. */
ssize_t sendfile(int to, int from, off_t *at, size_t count) { errno = ENOSYS; return -1; }
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) { errno = ENOSYS; return -1; }
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags) { errno = EXDEV; return -1; }
