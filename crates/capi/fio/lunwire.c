/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * fio's engine for iSCSI disks, by liblunwire:
 *
 *     fio --ioengine=.../fio-lunwire.so --url=iscsi://HOST/IQN/LUN ...
 *
 * fio has no stable interface for engines: it is built with the headers of the very version that is
 * to load it (scripts/fio-engine). Each job has a session and a queue of its own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lunwire.h>

#include "fio.h"
#include "optgroup.h"

/* fio gives options of engines a place in a structure whose first member must be something else. */
struct options {
    void *pad;
    char *url;
    char *set;
};

static struct fio_option options[] = {
    {
        .name = "url",
        .lname = "URL of the disk",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct options, url),
        .help = "iscsi://HOST[:PORT]/TARGET/LUN",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "lunwire",
        .lname = "Options of the session",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct options, set),
        .help = "NAME=VALUE;NAME=VALUE, as for lunwire_options_set()",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = NULL,
    },
};

/* What a job has. */
struct job {
    lunwire_disk disk;
    lunwire_queue queue;
    struct lunwire_completion *done;
    unsigned int capacity;
};

static int failed(const char *what)
{
    struct lunwire_error error;

    if (lunwire_last_error(&error) != 0)
        return EIO;
    log_err("lunwire: %s: %s\n", what, error.text);
    return error.system;
}

/* Sets NAME=VALUE;NAME=VALUE. */
static int set_all(lunwire_options set, const char *text)
{
    char *words = strdup(text), *rest = words, *word;
    int result = 0;

    while (result == 0 && (word = strsep(&rest, ";")) != NULL) {
        char *value = strchr(word, '=');

        if (*word == '\0')
            continue;
        if (value == NULL) {
            log_err("lunwire: NAME=VALUE;NAME=VALUE is right\n");
            result = EINVAL;
            break;
        }
        *value++ = '\0';
        if (lunwire_options_set(set, word, value) < 0)
            result = failed("option");
    }
    free(words);
    return result;
}

static int connect_disk(struct thread_data *td, lunwire_disk *disk)
{
    struct options *o = td->eo;
    lunwire_options set;
    int result = 0;

    if (o->url == NULL) {
        log_err("lunwire: url is missing\n");
        return EINVAL;
    }
    if (lunwire_options_new(&set) < 0)
        return failed("options");
    if (o->set != NULL)
        result = set_all(set, o->set);
    if (result == 0 && lunwire_connect(o->url, set, disk) < 0)
        result = failed("connect");
    lunwire_options_free(set);
    return result;
}

/* In the process that forks the jobs: it asks for the size, and leaves nothing open. */
static int setup(struct thread_data *td)
{
    struct lunwire_info info;
    lunwire_disk disk;
    int result;

    if (!td->files_index) {
        add_file(td, "lunwire", 0, 0);
        td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
        td->o.open_files++;
    }
    result = connect_disk(td, &disk);
    if (result == 0) {
        if (lunwire_info(disk, &info, sizeof(info)) < 0)
            result = failed("info");
        else
            td->files[0]->real_file_size = info.size;
        lunwire_close(disk);
    }
    if (result != 0)
        td_verror(td, result, "lunwire setup");
    return result;
}

static void cleanup(struct thread_data *td)
{
    struct job *job = td->io_ops_data;

    if (job == NULL)
        return;
    if (job->queue.id != 0)
        lunwire_queue_free(job->queue);
    if (job->disk.id != 0)
        lunwire_close(job->disk);
    free(job->done);
    free(job);
    td->io_ops_data = NULL;
}

static int init(struct thread_data *td)
{
    struct job *job = calloc(1, sizeof(*job));
    int result;

    if (job == NULL)
        return ENOMEM;
    td->io_ops_data = job;
    job->capacity = td->o.iodepth;
    job->done = calloc(job->capacity, sizeof(*job->done));
    if (job->done == NULL)
        return ENOMEM;
    result = connect_disk(td, &job->disk);
    if (result == 0 && lunwire_queue_new(job->capacity, &job->queue) < 0)
        result = failed("queue");
    if (result != 0)
        td_verror(td, result, "lunwire init");
    return result;
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    uint64_t tag = (uint64_t)(uintptr_t)io_u;
    int result;

    fio_ro_check(td, io_u);
    switch (io_u->ddir) {
    case DDIR_READ:
        result = lunwire_submit_read(job->disk, job->queue, tag, io_u->xfer_buf,
                                     io_u->xfer_buflen, io_u->offset);
        break;
    case DDIR_WRITE:
        result = lunwire_submit_write(job->disk, job->queue, tag, io_u->xfer_buf,
                                      io_u->xfer_buflen, io_u->offset,
                                      td->o.sync_io ? LUNWIRE_FUA : 0);
        break;
    case DDIR_TRIM:
        result = lunwire_submit_discard(job->disk, job->queue, tag, io_u->offset,
                                        io_u->xfer_buflen, 0);
        break;
    case DDIR_SYNC:
    case DDIR_DATASYNC:
        result = lunwire_submit_flush(job->disk, job->queue, tag);
        break;
    default:
        io_u->error = EOPNOTSUPP;
        return FIO_Q_COMPLETED;
    }
    if (result == LUNWIRE_E_FULL)
        return FIO_Q_BUSY;
    if (result < 0) {
        io_u->error = failed("submit");
        return FIO_Q_COMPLETED;
    }
    return FIO_Q_QUEUED;
}

static int getevents(struct thread_data *td, unsigned int min, unsigned int max,
                     const struct timespec *timeout)
{
    struct job *job = td->io_ops_data;
    int wait = timeout == NULL ? -1 : (int)(timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000);
    unsigned int have = 0;

    if (max > job->capacity)
        max = job->capacity;
    for (;;) {
        int count = lunwire_reap(job->queue, job->done + have, max - have);

        if (count < 0)
            return -failed("reap");
        /* event() comes after the last reap, which forgets the errors of those before. */
        for (int i = 0; i < count; i++) {
            struct lunwire_completion *done = &job->done[have + i];
            struct io_u *io_u = (struct io_u *)(uintptr_t)done->tag;
            struct lunwire_error error;

            io_u->error = 0;
            if (done->code == 0)
                continue;
            io_u->error = lunwire_errno(done->code);
            if (lunwire_reaped_error(job->queue, i, &error) == 0) {
                io_u->error = error.system;
                log_err("lunwire: %s\n", error.text);
            }
        }
        have += count;
        if (have >= min || (count == 0 && wait == 0))
            return have;
        if (count == 0 && lunwire_wait(job->queue, wait) < 0)
            return -failed("wait");
        /* What is left of the time is not counted: fio asks again. */
        if (timeout != NULL)
            wait = 0;
    }
}

static struct io_u *event(struct thread_data *td, int index)
{
    struct job *job = td->io_ops_data;

    return (struct io_u *)(uintptr_t)job->done[index].tag;
}

/* There are no files: what fio does to them does not reach the disk. */
static int open_file(struct thread_data *td, struct fio_file *file)
{
    return 0;
}

static int invalidate(struct thread_data *td, struct fio_file *file)
{
    return 0;
}

struct ioengine_ops ioengine = {
    .name = "lunwire",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND,
    .setup = setup,
    .init = init,
    .queue = queue,
    .getevents = getevents,
    .event = event,
    .cleanup = cleanup,
    .open_file = open_file,
    .invalidate = invalidate,
    .options = options,
    .option_struct_size = sizeof(struct options),
};
