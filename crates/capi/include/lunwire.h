/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * liblunwire: iSCSI and iSER disks for programs in C, without kernel modules, root or a daemon.
 *
 * Results. Functions that return `int` give 0 (or a count) when all is well, else a negative code
 * (enum lunwire_code). lunwire_last_error() has the text. No function aborts the program, but where
 * there is no memory for what is small; without memory for a copy of data a call fails.
 *
 * Handles are numbers in a structure; { 0 } is none. One that was closed, or never was one, is an
 * error (LUNWIRE_E_HANDLE) and never more than that.
 *
 * Threads. Any thread may call any function at any time, with the same handles, but for what
 * lunwire_reaped_error() says. Calls that wait go side by side. A handle that another thread closes
 * stays good for the calls that have begun. Each disk has a thread of the library's own, with the
 * signal mask of the thread that called lunwire_connect(): block there what it shall not handle.
 * After fork() the child may open disks itself. The handles of its parent are none to it
 * (LUNWIRE_E_HANDLE, from lunwire_close() too); the parent's sessions are not disturbed.
 *
 * Buffers. What is written is copied before the function returns: the buffer is yours again then.
 * The buffer of lunwire_submit_read() must stay until the end of the read was reaped, or the read
 * was forgotten, or the queue was freed; it is written to within lunwire_reap() alone, in the thread
 * that calls it. Buffers need no alignment.
 *
 * Ranges are bytes and made of whole blocks of the disk (lunwire_info). A range of no bytes is good.
 *
 * Durability. What a write has acknowledged may be in a volatile cache of the unit. It is on stable
 * storage when a later flush has ended well, or at once with LUNWIRE_FUA. A flush stands for all that
 * has ended before it was begun. Operations that are under way at a time are carried out in any order.
 *
 * Losses. A session that is lost comes back by itself, for as long as `reconnect-patience` says, and
 * what may be sent again is. If writes may be lost, flushes fail with LUNWIRE_E_WRITES_LOST until
 * the disk is opened anew.
 */
#ifndef LUNWIRE_H
#define LUNWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why something failed. Numbers stay what they are; new ones may come. */
enum lunwire_code {
    LUNWIRE_OK = 0,
    LUNWIRE_E_ARGUMENT = -1,        /* null, or nonsense */
    LUNWIRE_E_HANDLE = -2,          /* no such handle */
    LUNWIRE_E_URL = -3,             /* not of the form iscsi://[USER@]HOST[:PORT]/TARGET/LUN[?...] */
    LUNWIRE_E_OPTION = -4,          /* no such option, or a wrong value */
    LUNWIRE_E_UNREACHABLE = -5,     /* no portal takes a connection */
    LUNWIRE_E_LOGIN = -6,           /* the login failed */
    LUNWIRE_E_AUTHENTICATION = -7,  /* wrong secret, or not admitted */
    LUNWIRE_E_NO_TARGET = -8,       /* the portal has no such target */
    LUNWIRE_E_NO_DISK = -9,         /* the target has no such unit, or it is no disk */
    LUNWIRE_E_RANGE = -10,          /* beyond the end of the disk */
    LUNWIRE_E_UNALIGNED = -11,      /* not whole blocks */
    LUNWIRE_E_READ_ONLY = -12,      /* the disk is protected */
    LUNWIRE_E_MISCOMPARE = -13,     /* the disk has other data than was expected */
    LUNWIRE_E_UNSUPPORTED = -14,    /* the unit has no such command */
    LUNWIRE_E_TOO_LONG = -15,       /* more than one operation takes */
    LUNWIRE_E_BUSY = -16,           /* the target was busy for as long as it is tried */
    LUNWIRE_E_RESERVED = -17,       /* a reservation keeps us out */
    LUNWIRE_E_MEDIUM = -18,         /* the medium */
    LUNWIRE_E_NO_SPACE = -19,       /* a thin disk has no space left */
    LUNWIRE_E_STATUS = -20,         /* another status of the unit */
    LUNWIRE_E_SESSION = -21,        /* the session was lost, and did not come back in time */
    LUNWIRE_E_WRITES_LOST = -22,    /* what was not flushed may be lost */
    LUNWIRE_E_CANNOT_FLUSH = -23,   /* a volatile cache that nothing flushes */
    LUNWIRE_E_CHANGED = -24,        /* it is another disk now */
    LUNWIRE_E_PROTOCOL = -25,       /* the target breaks the rules */
    LUNWIRE_E_FULL = -26,           /* the queue is full: reap, and try again */
    LUNWIRE_E_CLOSED = -27,         /* it was closed on this side */
    LUNWIRE_E_SYSTEM = -28,         /* this machine refused; `system` has the errno */
    LUNWIRE_E_NONE = -29,           /* there is nothing to tell */
    LUNWIRE_E_DEFECT = -30          /* a defect of this library */
};

typedef struct { uint64_t id; } lunwire_options;
typedef struct { uint64_t id; } lunwire_disk;
typedef struct { uint64_t id; } lunwire_queue;

/* Why something failed, for programs and people. */
struct lunwire_error {
    int32_t code;           /* enum lunwire_code */
    int32_t system;         /* errno: of the system, or the one that says it best */
    uint8_t has_sense;      /* the next three are what the unit said */
    uint8_t status;         /* SAM-5 status of the command, or 0 */
    uint8_t sense_key;
    uint8_t asc;
    uint8_t ascq;
    uint8_t reserved[3];
    char text[1008];        /* one line, without secrets; cut where it is too long */
};

/* What a disk is like. */
struct lunwire_info {
    uint64_t size;                  /* bytes */
    uint32_t block;                 /* bytes of a block */
    uint32_t physical_block;        /* bytes below which the disk's own alignment is lost */
    uint32_t flags;                 /* LUNWIRE_HAS_... */
    uint32_t transfer_max;          /* bytes of one command: longer ranges are cut */
    uint32_t compare_max;           /* bytes of a compare and write; 0: there is none */
    uint32_t lun;
    uint64_t discard_granularity;   /* bytes of which multiples are given back best; 0: unknown */
    uint64_t discard_alignment;     /* where such a multiple begins */
    char name[128];                 /* naa., eui.: unique in the world; else t10., then naa. of 3h or
                                       without a company, or "" */
    char target[224];               /* iSCSI name */
};

#define LUNWIRE_HAS_READ_ONLY 1u        /* nothing can be written */
#define LUNWIRE_HAS_WRITE_CACHE 2u      /* a volatile write cache (WCE): flush what must stay */
#define LUNWIRE_HAS_FUA 4u              /* LUNWIRE_FUA is one command; else a flush goes behind */
#define LUNWIRE_HAS_DISCARD 8u          /* discard does something */
#define LUNWIRE_HAS_DISCARD_ZEROES 16u  /* what was discarded reads as zeroes */
#define LUNWIRE_HAS_ZERO 32u            /* zeroes are written without sending them */

/* Flags of operations. */
#define LUNWIRE_FUA 1u      /* ended when it is on stable storage */
#define LUNWIRE_KEEP 2u     /* zero: the space is kept */

/* Bytes of one read, write or comparison that is submitted to a queue; calls that wait cut longer
   reads and writes. */
#define LUNWIRE_LENGTH_MAX 33554432u

/* The version of the library, as text. */
const char *lunwire_version(void);

/* The errno that says `code` best; 0 for what is none. */
int lunwire_errno(int code);

/* Why the last call failed that failed in this thread. LUNWIRE_E_NONE if none did. */
int lunwire_last_error(struct lunwire_error *error);

/* Options of a session. One set serves any number of connects and may be freed after them.
   lunwire_option_name() lists the names, 0 upwards, NULL behind the last. Times are 5s, 100ms, 2m;
   flags yes or no. A secret is taken from `chap-secret-file`, `chap-secret-env` or `chap-secret`
   (the secret itself), the one of the target from `mutual-secret...`; secrets in URLs work and
   show to everybody who sees the URL. Options come before what the URL says. */
int lunwire_options_new(lunwire_options *options);
int lunwire_options_set(lunwire_options options, const char *name, const char *value);
const char *lunwire_option_name(size_t index);
int lunwire_options_free(lunwire_options options);

/* Logs in and waits until the disk is ready, for `connect-patience` (10s). `options` may be { 0 }.
   Several URLs with blanks between them are paths to one disk: it is checked to be one, and one
   that is lost costs no operation. `paths` says which one is taken: `least-queued`, `round-robin`
   or `failover`. stripe:64K(URL;URL) is several disks as one, each over one path or several. */
int lunwire_connect(const char *url, lunwire_options options, lunwire_disk *disk);

/* Logs out, for 6 s at most. It flushes nothing. What is under way ends with LUNWIRE_E_CLOSED, in
   queues too; a write among it may have been carried out or not. */
int lunwire_close(lunwire_disk disk);

/* What is known of the disk now, without asking it. `size`: sizeof *info. What the library does not
   know of a longer one is 0. */
int lunwire_info(lunwire_disk disk, struct lunwire_info *info, size_t size);

/* Asks the disk for size and limits anew. Sizes that change are also heard of without it. */
int lunwire_learn(lunwire_disk disk);

/* Calls that wait. One of several pieces that fails may have done some of them. */
int lunwire_read(lunwire_disk disk, void *to, size_t length, uint64_t offset);
int lunwire_write(lunwire_disk disk, const void *from, size_t length, uint64_t offset,
                  uint32_t flags);
int lunwire_flush(lunwire_disk disk);
/* The content is of no interest any more; the unit may give the space back, or do nothing. */
int lunwire_discard(lunwire_disk disk, uint64_t offset, uint64_t length, uint32_t flags);
int lunwire_zero(lunwire_disk disk, uint64_t offset, uint64_t length, uint32_t flags);
/* Writes `new_data` if the disk has `expected` there, as one; else LUNWIRE_E_MISCOMPARE. */
int lunwire_compare_and_write(lunwire_disk disk, const void *expected, const void *new_data,
                              size_t length, uint64_t offset);

/* What a completion is about. */
enum lunwire_what {
    LUNWIRE_OPERATION = 0,  /* an operation has ended: `code`, and `bytes` that it was about */
    LUNWIRE_RESIZED = 1,    /* the disk has `bytes` now (these and the next: lunwire_watch) */
    LUNWIRE_ATTENTION = 2,  /* the unit tells of a change: lunwire_learn() asks for it */
    LUNWIRE_LOST = 3,       /* the session was lost; operations wait */
    LUNWIRE_BACK = 4,       /* it is back, and they go on */
    LUNWIRE_ENDED = 5,      /* it is over; they fail */
    LUNWIRE_MAY_HAVE_LOST = 6, /* writes that were not flushed may be lost (`code` says so, its text
                               why): the unit was reset, began anew, or failed to keep them. One
                               without a volatile cache loses nothing by the first two */
    LUNWIRE_PATH = 7        /* of several paths to the disk that numbered `bytes`, from 0, is lost or
                               refused (`code` says why), used again, or in another state (0) */
};

struct lunwire_completion {
    uint64_t tag;
    int32_t what;       /* enum lunwire_what; what is unknown may be passed over */
    int32_t code;       /* 0, or enum lunwire_code */
    uint64_t bytes;
};

/* A completion queue for `depth` operations at a time, 1 to 65536, of any disks. */
int lunwire_queue_new(uint32_t depth, lunwire_queue *queue);

/* Frees it. What is under way goes on, and nobody hears of it; no buffer is touched any more when
   this has returned. Whoever is in lunwire_wait() leaves it, and is told by lunwire_reap(). */
int lunwire_queue_free(lunwire_queue queue);

/* A descriptor for poll, epoll or io_uring: readable while there may be something to reap, until
   lunwire_reap() has given less than it was asked for. Do not read it; do not close it. */
int lunwire_queue_fd(lunwire_queue queue);

/* Tells what happens to the disk to the queue, under `tag`, until the disk is closed. Of more than
   4096 that wait to be reaped the oldest are missed, but for LUNWIRE_ENDED and
   LUNWIRE_MAY_HAVE_LOST. */
int lunwire_watch(lunwire_disk disk, lunwire_queue queue, uint64_t tag);

/* Start an operation and return. If that is 0 there will be one completion with `tag`, else none.
   Tags are the caller's own. LUNWIRE_E_FULL: as many are under way as the queue is deep. */
int lunwire_submit_read(lunwire_disk disk, lunwire_queue queue, uint64_t tag, void *to,
                        size_t length, uint64_t offset);
int lunwire_submit_write(lunwire_disk disk, lunwire_queue queue, uint64_t tag, const void *from,
                         size_t length, uint64_t offset, uint32_t flags);
int lunwire_submit_flush(lunwire_disk disk, lunwire_queue queue, uint64_t tag);
int lunwire_submit_discard(lunwire_disk disk, lunwire_queue queue, uint64_t tag, uint64_t offset,
                           uint64_t length, uint32_t flags);
int lunwire_submit_zero(lunwire_disk disk, lunwire_queue queue, uint64_t tag, uint64_t offset,
                        uint64_t length, uint32_t flags);
int lunwire_submit_compare_and_write(lunwire_disk disk, lunwire_queue queue, uint64_t tag,
                                     const void *expected, const void *new_data, size_t length,
                                     uint64_t offset);

/* Takes what has ended or happened, `count` at most, without waiting; gives how many. */
int lunwire_reap(lunwire_queue queue, struct lunwire_completion *completions, size_t count);

/* Why the completion at `index` of the last lunwire_reap() failed: LUNWIRE_E_NONE if it did not.
   Threads that share a queue may hear of each other's. */
int lunwire_reaped_error(lunwire_queue queue, size_t index, struct lunwire_error *error);

/* Waits until the descriptor is readable, `timeout_ms` at most (negative: for ever). 1: it is, 0: it
   is not, or not yet. */
int lunwire_wait(lunwire_queue queue, int timeout_ms);

/* Cancels interest, not the work: gives how many operations had this tag. None of them is heard of
   any more, no buffer of theirs is touched when this has returned, and each counts against the depth
   until it has really ended. A command that is under way cannot be called back: a write among them
   may be carried out, now or later, unless the disk is closed before it was sent. */
int lunwire_forget(lunwire_queue queue, uint64_t tag);

#ifdef __cplusplus
}
#endif

#endif
