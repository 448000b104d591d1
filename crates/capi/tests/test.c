/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What include/lunwire.h promises, against a target.
 *
 *     test URL READ_ONLY_URL CHAP_URL SECRET_FILE
 *
 * URL: a disk of 32 MiB with blocks of 512 bytes, whose content is of no use to anybody.
 */
#include <assert.h>
#include <errno.h>
#include <lunwire.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#undef NDEBUG
#define MIB (1u << 20)
#define GOOD(call) good(call, #call, __LINE__)
#define FAILS(code, call) fails(code, call, #call, __LINE__)

static const lunwire_options NONE = {0};

static int good(int result, const char *call, int line)
{
    struct lunwire_error error;
    if (result < 0) {
        lunwire_last_error(&error);
        fprintf(stderr, "line %d: %s: %d: %s\n", line, call, result, error.text);
        exit(1);
    }
    return result;
}

static struct lunwire_error fails(int code, int result, const char *call, int line)
{
    struct lunwire_error error;
    memset(&error, 0xff, sizeof error);
    if (result != code) {
        fprintf(stderr, "line %d: %s: %d in place of %d\n", line, call, result, code);
        exit(1);
    }
    assert(lunwire_last_error(&error) == 0 && error.code == code);
    assert(error.text[0] != '\0' && memchr(error.text, '\0', sizeof error.text) != NULL);
    assert(error.system > 0);
    return error;
}

static void pattern(unsigned char *to, size_t length, unsigned seed)
{
    for (size_t at = 0; at < length; at++)
        to[at] = (unsigned char)((at * 31 + at / 512 * 7 + seed) % 251);
}

static int all_are(const unsigned char *bytes, size_t length, unsigned char value)
{
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != value)
            return 0;
    return 1;
}

static void arguments(const char *url)
{
    struct lunwire_error error;
    struct lunwire_completion done;
    lunwire_disk disk = {7};
    lunwire_options options;
    lunwire_queue queue = {0x1234};

    assert(lunwire_last_error(&error) == LUNWIRE_E_NONE);
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_connect(NULL, NONE, &disk));
    assert(disk.id == 0);
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_connect(url, NONE, NULL));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_connect("\xff\xfe", NONE, &disk));
    FAILS(LUNWIRE_E_URL, lunwire_connect("http://host/a/0", NONE, &disk));
    FAILS(LUNWIRE_E_URL, lunwire_connect("iscsi://127.0.0.1", NONE, &disk));
    assert(strstr(FAILS(LUNWIRE_E_HANDLE, lunwire_flush(disk)).text, "disk") != NULL);
    FAILS(LUNWIRE_E_HANDLE, lunwire_close(disk));
    FAILS(LUNWIRE_E_HANDLE, lunwire_reap(queue, &done, 1));
    FAILS(LUNWIRE_E_HANDLE, lunwire_queue_fd(queue));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_queue_new(0, &queue));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_queue_new(65537, &queue));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_queue_new(1, NULL));
    assert(lunwire_last_error(NULL) == LUNWIRE_E_ARGUMENT);

    GOOD(lunwire_options_new(&options));
    FAILS(LUNWIRE_E_OPTION, lunwire_options_set(options, "chap_user", "a"));
    FAILS(LUNWIRE_E_OPTION, lunwire_options_set(options, "connections", "many"));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_options_set(options, "connections", NULL));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_options_set(options, NULL, "1"));
    GOOD(lunwire_options_free(options));
    FAILS(LUNWIRE_E_HANDLE, lunwire_options_free(options));
    FAILS(LUNWIRE_E_HANDLE, lunwire_options_set(options, "connections", "2"));
    FAILS(LUNWIRE_E_HANDLE, lunwire_connect(url, options, &disk));

    size_t names = 0;
    while (lunwire_option_name(names) != NULL)
        names++;
    assert(names > 40 && lunwire_option_name(SIZE_MAX) == NULL);
    assert(lunwire_version()[0] >= '0' && lunwire_errno(LUNWIRE_E_RANGE) == EINVAL);
    assert(lunwire_errno(0) == 0 && lunwire_errno(-1000) == 0);
}

static void logins(const char *url, const char *chap_url, const char *secret_file)
{
    lunwire_options options;
    lunwire_disk disk;
    char wrong[512];

    GOOD(lunwire_options_new(&options));
    GOOD(lunwire_options_set(options, "patience", "0"));
    const char *nobody = "iscsi://127.0.0.1:1/iqn.2026-01.test:a/0";
    assert(FAILS(LUNWIRE_E_UNREACHABLE, lunwire_connect(nobody, options, &disk)).system == ECONNREFUSED);
    snprintf(wrong, sizeof wrong, "%.*s/7", (int)(strrchr(url, '/') - url), url);
    FAILS(LUNWIRE_E_NO_DISK, lunwire_connect(wrong, options, &disk));
    snprintf(wrong, sizeof wrong, "%.*s", (int)(strstr(url, "/iqn") - url), url);
    strncat(wrong, "/iqn.2026-01.test:nobody/0", sizeof wrong - strlen(wrong) - 1);
    FAILS(LUNWIRE_E_NO_TARGET, lunwire_connect(wrong, options, &disk));

    FAILS(LUNWIRE_E_AUTHENTICATION, lunwire_connect(chap_url, options, &disk));
    GOOD(lunwire_options_set(options, "chap-user", "host"));
    GOOD(lunwire_options_set(options, "chap-secret", "not the secret"));
    struct lunwire_error error =
        FAILS(LUNWIRE_E_AUTHENTICATION, lunwire_connect(chap_url, options, &disk));
    assert(strstr(error.text, "not the secret") == NULL);
    GOOD(lunwire_options_set(options, "chap-secret-file", secret_file));
    GOOD(lunwire_connect(chap_url, options, &disk));
    GOOD(lunwire_close(disk));
    GOOD(lunwire_options_free(options));
}

static void calls(const char *url, const char *read_only)
{
    lunwire_disk disk;
    struct lunwire_info info;
    unsigned char *data = malloc(10 * MIB), *back = malloc(10 * MIB);

    assert(data != NULL && back != NULL);
    GOOD(lunwire_connect(url, NONE, &disk));
    GOOD(lunwire_info(disk, &info, sizeof info));
    assert(info.size == 32 * MIB && info.block == 512 && info.lun == 0);
    assert(strncmp(info.target, "iqn.", 4) == 0 && strchr(info.name, '.') == info.name + 3);
    assert((info.flags & LUNWIRE_HAS_READ_ONLY) == 0 && info.transfer_max >= 4096);
    /* A program that knows less of it, and one that knows more. */
    uint64_t sizes[200];
    memset(sizes, 0xa5, sizeof sizes);
    GOOD(lunwire_info(disk, (struct lunwire_info *)sizes, 8));
    assert(sizes[0] == 32 * MIB && sizes[1] == 0xa5a5a5a5a5a5a5a5u);
    GOOD(lunwire_info(disk, (struct lunwire_info *)sizes, sizeof sizes));
    assert(memcmp(sizes, &info, sizeof info) == 0);
    for (size_t i = sizeof info / 8; i < 200; i++)
        assert(sizes[i] == 0);
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_info(disk, &info, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_info(disk, NULL, sizeof info));

    /* More than one piece, at an address without alignment. */
    pattern(data + 1, 9 * MIB, 1);
    GOOD(lunwire_write(disk, data + 1, 9 * MIB, 512, 0));
    GOOD(lunwire_read(disk, back + 3, 9 * MIB, 512));
    assert(memcmp(data + 1, back + 3, 9 * MIB) == 0);
    GOOD(lunwire_write(disk, data, 512, 0, LUNWIRE_FUA));
    GOOD(lunwire_flush(disk));
    GOOD(lunwire_read(disk, NULL, 0, 0));

    GOOD(lunwire_zero(disk, 1 * MIB, MIB, LUNWIRE_KEEP | LUNWIRE_FUA));
    GOOD(lunwire_read(disk, back, MIB, MIB));
    assert(all_are(back, MIB, 0));
    GOOD(lunwire_discard(disk, 2 * MIB, MIB, LUNWIRE_FUA));
    if (info.flags & LUNWIRE_HAS_DISCARD_ZEROES) {
        GOOD(lunwire_read(disk, back, MIB, 2 * MIB));
        assert(all_are(back, MIB, 0));
    }
    assert(info.compare_max >= 512);
    pattern(data, 1024, 9);
    GOOD(lunwire_zero(disk, 0, 512, 0));
    memset(back, 0, 512);
    GOOD(lunwire_compare_and_write(disk, back, data, 512, 0));
    struct lunwire_error error =
        FAILS(LUNWIRE_E_MISCOMPARE, lunwire_compare_and_write(disk, back, data + 512, 512, 0));
    assert(error.system == EILSEQ);
    GOOD(lunwire_read(disk, back, 512, 0));
    assert(memcmp(back, data, 512) == 0);

    FAILS(LUNWIRE_E_UNALIGNED, lunwire_read(disk, back, 100, 0));
    FAILS(LUNWIRE_E_UNALIGNED, lunwire_write(disk, back, 512, 1, 0));
    FAILS(LUNWIRE_E_RANGE, lunwire_read(disk, back, 1024, 32 * MIB - 512));
    FAILS(LUNWIRE_E_RANGE, lunwire_discard(disk, UINT64_MAX - 511, 512, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_read(disk, NULL, 512, 0));
    FAILS(LUNWIRE_E_RANGE, lunwire_read(disk, back, SIZE_MAX - 511, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_write(disk, NULL, 512, 0, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_write(disk, back, 512, 0, LUNWIRE_KEEP));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_zero(disk, 0, 512, 0x80000000u));
    FAILS(LUNWIRE_E_TOO_LONG,
          lunwire_compare_and_write(disk, data, data, LUNWIRE_LENGTH_MAX + 512u, 0));
    GOOD(lunwire_learn(disk));
    GOOD(lunwire_close(disk));
    FAILS(LUNWIRE_E_HANDLE, lunwire_read(disk, back, 512, 0));
    FAILS(LUNWIRE_E_HANDLE, lunwire_close(disk));

    GOOD(lunwire_connect(read_only, NONE, &disk));
    GOOD(lunwire_info(disk, &info, sizeof info));
    assert(info.flags & LUNWIRE_HAS_READ_ONLY);
    error = FAILS(LUNWIRE_E_READ_ONLY, lunwire_write(disk, data, 512, 0, 0));
    assert(error.has_sense && error.sense_key == 7 && error.asc == 0x27 && error.status == 2);
    GOOD(lunwire_close(disk));
    free(data);
    free(back);
}

/* Reaps until `wanted` completions are there; waits by the descriptor. */
static void reap(lunwire_queue queue, struct lunwire_completion *done, int wanted)
{
    struct pollfd wait = {.fd = GOOD(lunwire_queue_fd(queue)), .events = POLLIN};
    for (int have = 0; have < wanted;) {
        int count = GOOD(lunwire_reap(queue, done + have, (size_t)(wanted - have)));
        if (count == 0)
            assert(poll(&wait, 1, 20000) == 1);
        have += count;
    }
}

enum { DEPTH = 64, PIECE = 64 << 10 };

static void queues(const char *url)
{
    lunwire_disk disk;
    lunwire_queue queue;
    struct lunwire_completion done[DEPTH + 1];
    struct lunwire_error error;
    unsigned char *data = malloc(PIECE), *back = malloc((size_t)DEPTH * PIECE);

    assert(data != NULL && back != NULL);
    GOOD(lunwire_connect(url, NONE, &disk));
    GOOD(lunwire_queue_new(DEPTH, &queue));
    assert(GOOD(lunwire_reap(queue, done, DEPTH)) == 0 && GOOD(lunwire_wait(queue, 0)) == 0);
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_reap(queue, NULL, 1));
    for (unsigned i = 0; i < DEPTH; i++) {
        pattern(data, PIECE, i);
        GOOD(lunwire_submit_write(disk, queue, i, data, PIECE, (uint64_t)i * PIECE, i % 2));
        /* It was copied. */
        memset(data, 0xee, PIECE);
    }
    assert(lunwire_errno(FAILS(LUNWIRE_E_FULL, lunwire_submit_flush(disk, queue, 99)).code) == EAGAIN);
    reap(queue, done, DEPTH);
    uint64_t sum = 0;
    for (int i = 0; i < DEPTH; i++) {
        assert(done[i].what == LUNWIRE_OPERATION && done[i].code == 0 && done[i].bytes == PIECE);
        sum += done[i].tag;
    }
    assert(sum == DEPTH * (DEPTH - 1) / 2);
    GOOD(lunwire_submit_flush(disk, queue, UINT64_MAX));
    reap(queue, done, 1);
    assert(done[0].tag == UINT64_MAX && done[0].code == 0);

    for (unsigned i = 0; i < DEPTH; i++)
        GOOD(lunwire_submit_read(disk, queue, i, back + (size_t)i * PIECE, PIECE, (uint64_t)i * PIECE));
    reap(queue, done, DEPTH);
    for (unsigned i = 0; i < DEPTH; i++) {
        pattern(data, PIECE, i);
        assert(done[i].code == 0 && memcmp(back + (size_t)i * PIECE, data, PIECE) == 0);
    }
    assert(GOOD(lunwire_reap(queue, done, DEPTH)) == 0 && GOOD(lunwire_wait(queue, 10)) == 0);

    /* Each kind, and one that fails. */
    memset(back, 1, 512);
    GOOD(lunwire_submit_zero(disk, queue, 1, 0, PIECE, LUNWIRE_KEEP));
    reap(queue, done, 1);
    GOOD(lunwire_submit_compare_and_write(disk, queue, 2, back, back, 512, 0));
    GOOD(lunwire_submit_discard(disk, queue, 3, PIECE, PIECE, 0));
    reap(queue, done, 2);
    int failed = done[0].tag == 2 ? 0 : 1;
    assert(done[failed].code == LUNWIRE_E_MISCOMPARE && done[failed].bytes == 0 && done[!failed].code == 0);
    GOOD(lunwire_submit_compare_and_write(disk, queue, 4, back, back, 512, 0));
    reap(queue, done, 1);
    GOOD(lunwire_reaped_error(queue, 0, &error));
    assert(error.code == LUNWIRE_E_MISCOMPARE && error.text[0] != '\0');
    FAILS(LUNWIRE_E_NONE, lunwire_reaped_error(queue, 1, &error));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_reaped_error(queue, 0, NULL));

    /* Refused at once: nothing is told to the queue. */
    FAILS(LUNWIRE_E_UNALIGNED, lunwire_submit_read(disk, queue, 5, back, 100, 0));
    FAILS(LUNWIRE_E_TOO_LONG, lunwire_submit_read(disk, queue, 5, back, LUNWIRE_LENGTH_MAX + 512u, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_submit_read(disk, queue, 5, NULL, 512, 0));
    FAILS(LUNWIRE_E_ARGUMENT, lunwire_submit_write(disk, queue, 5, back, 512, 0, 4));

    /* What is forgotten touches no buffer, and leaves its place when it has ended. */
    memset(back, 0xaa, PIECE);
    GOOD(lunwire_submit_read(disk, queue, 6, back, PIECE, PIECE));
    assert(GOOD(lunwire_forget(queue, 6)) == 1 && GOOD(lunwire_forget(queue, 6)) == 0);
    GOOD(lunwire_submit_flush(disk, queue, 7));
    reap(queue, done, 1);
    assert(done[0].tag == 7 && all_are(back, PIECE, 0xaa));

    /* The queue goes while reads are under way, then the disk while writes are. */
    GOOD(lunwire_submit_read(disk, queue, 8, back, PIECE, 0));
    GOOD(lunwire_queue_free(queue));
    free(back);
    FAILS(LUNWIRE_E_HANDLE, lunwire_queue_free(queue));
    FAILS(LUNWIRE_E_HANDLE, lunwire_submit_flush(disk, queue, 1));
    GOOD(lunwire_queue_new(DEPTH, &queue));
    GOOD(lunwire_watch(disk, queue, 1000));
    for (unsigned i = 0; i < DEPTH; i++)
        GOOD(lunwire_submit_write(disk, queue, i, data, PIECE, (uint64_t)i * PIECE, 0));
    GOOD(lunwire_close(disk));
    int ended = 0;
    for (int have = 0; have < DEPTH;) {
        int count = GOOD(lunwire_reap(queue, done, DEPTH));
        if (count == 0)
            assert(GOOD(lunwire_wait(queue, 20000)) == 1);
        for (int i = 0; i < count; i++) {
            have += done[i].what == LUNWIRE_OPERATION;
            ended += done[i].what == LUNWIRE_ENDED && done[i].tag == 1000;
            assert(done[i].code == 0 || done[i].code == LUNWIRE_E_CLOSED);
        }
    }
    assert(ended <= 1);
    GOOD(lunwire_queue_free(queue));
    free(data);
}

struct share { lunwire_disk disk; unsigned number; };

static void *one_of_several(void *argument)
{
    struct share *share = argument;
    unsigned char data[4096], back[4096];
    struct lunwire_error error;
    assert(lunwire_last_error(&error) == LUNWIRE_E_NONE);
    for (unsigned round = 0; round < 50; round++) {
        uint64_t at = (uint64_t)share->number * MIB + round * sizeof data;
        pattern(data, sizeof data, round + share->number);
        GOOD(lunwire_write(share->disk, data, sizeof data, at, 0));
        GOOD(lunwire_read(share->disk, back, sizeof back, at));
        assert(memcmp(data, back, sizeof back) == 0);
    }
    return NULL;
}

static void threads(const char *url)
{
    struct share shares[4];
    pthread_t threads[4];
    lunwire_disk disk;

    GOOD(lunwire_connect(url, NONE, &disk));
    for (unsigned i = 0; i < 4; i++) {
        shares[i] = (struct share){disk, i};
        assert(pthread_create(&threads[i], NULL, one_of_several, &shares[i]) == 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    GOOD(lunwire_close(disk));
}

static void *until_freed(void *argument)
{
    struct lunwire_completion done;
    lunwire_queue queue = *(lunwire_queue *)argument;

    while (lunwire_wait(queue, -1) >= 0 && lunwire_reap(queue, &done, 1) >= 0)
        ;
    return NULL;
}

/* Whoever waits for a queue that is freed is told so. */
static void freed(void)
{
    pthread_t threads[3];
    lunwire_queue queue;

    GOOD(lunwire_queue_new(1, &queue));
    for (unsigned i = 0; i < 3; i++)
        assert(pthread_create(&threads[i], NULL, until_freed, &queue) == 0);
    usleep(100000);
    GOOD(lunwire_queue_free(queue));
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

/* A child has no handles of its parent's, and may have its own. */
static void forks(const char *url)
{
    lunwire_disk disk, own;
    lunwire_queue queue, second;
    lunwire_options options;
    char block[512];
    int status;

    GOOD(lunwire_connect(url, NONE, &disk));
    GOOD(lunwire_queue_new(1, &queue));
    GOOD(lunwire_options_new(&options));
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        FAILS(LUNWIRE_E_HANDLE, lunwire_read(disk, block, sizeof block, 0));
        FAILS(LUNWIRE_E_HANDLE, lunwire_close(disk));
        FAILS(LUNWIRE_E_HANDLE, lunwire_queue_free(queue));
        FAILS(LUNWIRE_E_HANDLE, lunwire_connect(url, options, &own));
        GOOD(lunwire_connect(url, NONE, &own));
        GOOD(lunwire_queue_new(1, &second));
        FAILS(LUNWIRE_E_HANDLE, lunwire_submit_flush(disk, second, 0));
        FAILS(LUNWIRE_E_HANDLE, lunwire_submit_flush(own, queue, 0));
        GOOD(lunwire_read(own, block, sizeof block, 0));
        GOOD(lunwire_close(own));
        /* What its parent has allocated is no leak of its own. */
        _exit(0);
    }
    assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    GOOD(lunwire_read(disk, block, sizeof block, 0));
    GOOD(lunwire_options_free(options));
    GOOD(lunwire_queue_free(queue));
    GOOD(lunwire_close(disk));
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "usage: test URL READ_ONLY_URL CHAP_URL SECRET_FILE\n");
        return 2;
    }
    arguments(words[1]);
    logins(words[1], words[3], words[4]);
    calls(words[1], words[2]);
    queues(words[1]);
    threads(words[1]);
    freed();
    forks(words[1]);
    printf("passed\n");
    return 0;
}
