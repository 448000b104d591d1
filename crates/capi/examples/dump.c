/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes a whole disk to standard output, many reads at a time, from a poll loop.
 *
 *     cc -Wall dump.c $(pkg-config --cflags --libs lunwire) -o dump
 *     ./dump iscsi://HOST/IQN/LUN [NAME=VALUE...] > disk.img
 */
#include <lunwire.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 32, BYTES = 256 << 10 };

static int failed(const char *what)
{
    struct lunwire_error error;
    if (lunwire_last_error(&error) == 0)
        fprintf(stderr, "%s: %s\n", what, error.text);
    return EXIT_FAILURE;
}

/* Reads all pieces, and writes them in order as they come: piece N is in buffer N % DEPTH. */
static int dump(lunwire_disk disk, lunwire_queue queue, uint64_t size, unsigned char *buffers)
{
    struct lunwire_completion done[DEPTH];
    bool ready[DEPTH] = {false};
    uint64_t pieces = (size + BYTES - 1) / BYTES, asked = 0, written = 0;
    while (written < pieces) {
        while (asked < pieces && asked < written + DEPTH) {
            uint64_t left = size - asked * BYTES;
            if (lunwire_submit_read(disk, queue, asked, buffers + asked % DEPTH * BYTES,
                                    left < BYTES ? left : BYTES, asked * BYTES) < 0)
                return failed("read");
            asked++;
        }
        int count = lunwire_reap(queue, done, DEPTH);
        if (count < 0)
            return failed("reap");
        if (count == 0) {
            /* A program with other descriptors has them beside this one. */
            struct pollfd wait = {.fd = lunwire_queue_fd(queue), .events = POLLIN};
            poll(&wait, 1, -1);
        }
        for (int i = 0; i < count; i++) {
            struct lunwire_error error;
            if (done[i].code != 0) {
                if (lunwire_reaped_error(queue, (size_t)i, &error) == 0)
                    fprintf(stderr, "at byte %llu: %s\n",
                            (unsigned long long)done[i].tag * BYTES, error.text);
                return EXIT_FAILURE;
            }
            ready[done[i].tag % DEPTH] = true;
        }
        while (written < asked && ready[written % DEPTH]) {
            uint64_t left = size - written * BYTES;
            size_t length = left < BYTES ? (size_t)left : BYTES;
            if (fwrite(buffers + written % DEPTH * BYTES, 1, length, stdout) != length) {
                perror("standard output");
                return EXIT_FAILURE;
            }
            ready[written % DEPTH] = false;
            written++;
        }
    }
    return EXIT_SUCCESS;
}

int main(int count, char **words)
{
    if (count < 2) {
        fprintf(stderr, "usage: dump iscsi://HOST/IQN/LUN [NAME=VALUE...]\n");
        return 2;
    }
    lunwire_options options;
    if (lunwire_options_new(&options) < 0)
        return failed("options");
    for (int i = 2; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (value == NULL) {
            fprintf(stderr, "%s: NAME=VALUE is right\n", words[i]);
            return 2;
        }
        *value++ = '\0';
        if (lunwire_options_set(options, words[i], value) < 0)
            return failed("options");
    }
    lunwire_disk disk;
    if (lunwire_connect(words[1], options, &disk) < 0)
        return failed("connect");
    lunwire_options_free(options);

    struct lunwire_info info;
    lunwire_queue queue;
    if (lunwire_info(disk, &info, sizeof info) < 0 || lunwire_queue_new(DEPTH, &queue) < 0)
        return failed("start");
    fprintf(stderr, "%s: %llu bytes in blocks of %u\n", info.name, (unsigned long long)info.size,
            info.block);
    unsigned char *buffers = malloc((size_t)DEPTH * BYTES);
    int status = buffers == NULL ? EXIT_FAILURE : dump(disk, queue, info.size, buffers);
    /* First the queue: reads that are under way then have no buffer any more. */
    lunwire_queue_free(queue);
    free(buffers);
    lunwire_close(disk);
    return status;
}
